-- Return the last steps in which visitors were admitted, and how many left or were removed before each.
---@keyset keys
---@arg most        int     number of moves that are read
---@arg now_ms      time
-- Reply: {now by the clock of the server that recorded them, {at_ms, admitted, gone} of each step, flat}

local steps, gone = {}, 0
local found = redis.call('XREVRANGE', keys.moves, '+', '-', 'COUNT', most)
for n = #found, 1, -1 do
  local fields = {}
  for at = 1, #found[n][2], 2 do fields[found[n][2][at]] = tonumber(found[n][2][at + 1]) end
  gone = gone + fields.gone
  if fields.admitted > 0 then
    for _, value in ipairs({fields.at_ms, fields.admitted, gone}) do steps[#steps + 1] = value end
    gone = 0
  end
end
return {now_ms, steps}
