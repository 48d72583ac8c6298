-- A consumer could not handle messages that it holds: give them again, or bury them.
--
---@key stream    stream  messages
---@key dead      stream  dead letters
---@arg group     str
---@arg consumer  str
---@arg ids       packed  list of message ids
---@arg most      int     deliveries after which a message is buried; 1 buries at once
---@arg reason    str
---@arg now_ms    time
---@include pending
---@include redeliver
-- Reply: {given again, buried}
-- Messages that the consumer does not hold (any more) are left alone.

local held = {}
for _, id in ipairs(ids) do
  if #pending(stream, group, id, id, 1, consumer) == 1 then held[#held + 1] = id end
end
return {redeliver(stream, dead, group, held, {reason = reason, most = most}, now_ms)}
