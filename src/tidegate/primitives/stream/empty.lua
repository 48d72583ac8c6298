-- Redeliver at most `limit` messages of one consumer; remove it from the group when none is left.
--
---@key stream    stream  messages
---@key dead      stream  dead letters
---@arg group     str
---@arg consumer  str
---@arg limit     int
---@arg most      int     deliveries after which a message becomes a dead letter; 0: this one does not count
---@arg reason    str
---@arg now_ms    time
---@include pending
---@include redeliver
-- Reply: {redelivered, dead letters, 1 if it may hold more else 0}

local ids = {}
for n, item in ipairs(pending(stream, group, '-', '+', limit, consumer)) do ids[n] = item[1] end
local why = {reason = reason, most = most > 0 and most or nil}
local redelivered, dead_lettered = redeliver(stream, dead, group, ids, why, now_ms)
if #ids == limit then return {redelivered, dead_lettered, 1} end
-- Atomic with the read above, so nothing was delivered to it in between. Without a group there is nothing to remove.
redis.pcall('XGROUP', 'DELCONSUMER', stream, group, consumer)
return {redelivered, dead_lettered, 0}
