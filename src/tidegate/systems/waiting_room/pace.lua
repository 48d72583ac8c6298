-- The last steps in which people were let in, and how many gave up or were gone until each.
--
---@key book        hash    the room's rules and counters
---@key waiting     zset    user scored by place
---@key entering    zset    user scored by when somebody else settles it, ms
---@key entries     hash    user -> admission|place|last sign of life
---@key active      zset    user scored by the end of the session, ms
---@key admissions  hash    user -> admission
---@key guests      set     those who came in beside the capacity
---@key seen        string  signs of life
---@key chunks      zset    when to look for the silent, ms
---@key log         stream  every step
---@key moves       stream  the last steps by which the line got shorter
---@key wake        list    at most one token
---@arg most        int     so many steps by which the line got shorter are looked at
---@arg now_ms      time
-- Reply: {now, by the clock of the server that noted them, {at_ms, admitted, gone} of each, one after the other, flat}

local steps, gone = {}, 0
local found = redis.call('XREVRANGE', moves, '+', '-', 'COUNT', most)
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
