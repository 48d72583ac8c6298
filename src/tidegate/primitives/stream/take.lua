-- A worker takes messages of which it heard by another queue, as far as nobody has them in hand.
--
---@key stream    stream  messages
---@arg group     str
---@arg consumer  str
---@arg ids       packed  list of message ids
---@include pending
---@include waypoint
-- Reply: those that are now with `consumer`: {{id, {field, value, ...}}, ...}
-- Another worker's, and what is done or has become a new entry, is left alone. What is with `consumer` already it gets
-- again: the answer may have been lost.

local free = {}
for _, id in ipairs(ids) do
  local found = pending(stream, group, id, id, 1)[1]
  if found and (found[2] == consumer or is_waypoint(found[2])) then free[#free + 1] = id end
end
if #free == 0 then return {} end
return redis.call('XCLAIM', stream, group, consumer, 0, unpack(free))
