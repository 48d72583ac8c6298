-- The last steps in which people were let in, and how many gave up or were gone until each.
--
---@keyset keys
---@arg most        int     so many steps by which the line got shorter are looked at
---@arg now_ms      time
-- Reply: {now, by the clock of the server that noted them, {at_ms, admitted, gone} of each, one after the other, flat}

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
