-- Take timers away before they are due.
--
---@key due       zset  timer id scored by due ms
---@key payloads  hash  timer id -> payload
---@arg timer_ids packed  list of ids
-- Reply: how many of them there were
-- Needs no ring: whoever sleeps until the due time of a cancelled timer wakes for nothing, once.

local removed = 0
for _, timer_id in ipairs(timer_ids) do
  removed = removed + redis.call('ZREM', due, timer_id)
  redis.call('HDEL', payloads, timer_id)
end
return removed
