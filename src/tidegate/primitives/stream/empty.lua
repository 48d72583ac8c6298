-- Take from one consumer what it holds, at most `limit` messages; when nothing is left, take it out of the group.
--
---@key stream    stream  messages
---@key dead      stream  dead letters
---@arg group     str
---@arg consumer  str
---@arg limit     int
---@arg most      int     deliveries after which a message is buried; 0: it left in good order, so this one does not count
---@arg reason    str
---@arg now_ms    time
---@include pending
---@include redeliver
-- Reply: {given again, buried, 1 if it may hold more else 0}

local ids = {}
for n, item in ipairs(pending(stream, group, '-', '+', limit, consumer)) do ids[n] = item[1] end
local why = {reason = reason, most = most > 0 and most or nil}
local given, buried = redeliver(stream, dead, group, ids, why, now_ms)
if #ids == limit then return {given, buried, 1} end
-- Atomic with the look above, so nothing can have been delivered to it in between. No group: nothing to leave.
redis.pcall('XGROUP', 'DELCONSUMER', stream, group, consumer)
return {given, buried, 0}
