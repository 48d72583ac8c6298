-- Take timers away before they are due.
--
---@key due       zset  timer id scored by due ms
---@key payloads  hash  timer id -> payload
---@arg timer_ids packed  list of ids
-- Reply: how many of them there were
-- Sends no wake-up: a process that sleeps until the due time of a cancelled timer wakes once without need.

local removed = 0
for _, timer_id in ipairs(timer_ids) do
  removed = removed + redis.call('ZREM', due, timer_id)
  redis.call('HDEL', payloads, timer_id)
end
return removed
