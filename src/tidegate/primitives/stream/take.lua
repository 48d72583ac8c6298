-- A worker takes the messages of tickets that it received, unless another worker has them.
--
---@key stream    stream  messages
---@arg group     str
---@arg consumer  str
---@arg ids       packed  list of message ids
---@include pending
---@include waypoint
-- Reply: the messages that `consumer` holds now: {{id, {field, value, ...}}, ...}
-- Messages of other workers and finished ones are unchanged. Those that `consumer` holds already are returned again,
-- because the earlier reply may have been lost.

local free = {}
for _, id in ipairs(ids) do
  local found = pending(stream, group, id, id, 1)[1]
  if found and (found[2] == consumer or is_waypoint(found[2])) then free[#free + 1] = id end
end
if #free == 0 then return {} end
return redis.call('XCLAIM', stream, group, consumer, 0, unpack(free))
