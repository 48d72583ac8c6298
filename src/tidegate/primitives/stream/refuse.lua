-- A consumer failed to process messages that it holds: redeliver or dead-letter them.
--
---@key stream    stream  messages
---@key dead      stream  dead letters
---@arg group     str
---@arg consumer  str
---@arg ids       packed  list of message ids
---@arg most      int     deliveries after which a message becomes a dead letter; 1: at once
---@arg reason    str
---@arg now_ms    time
---@include pending
---@include redeliver
-- Reply: {redelivered, dead letters}
-- Messages that the consumer does not hold are unchanged.

local held = {}
for _, id in ipairs(ids) do
  if #pending(stream, group, id, id, 1, consumer) == 1 then held[#held + 1] = id end
end
return {redeliver(stream, dead, group, held, {reason = reason, most = most}, now_ms)}
