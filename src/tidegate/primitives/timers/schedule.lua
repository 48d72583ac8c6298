-- Set timers; one that exists already is replaced.
--
---@key due       zset  timer id scored by due ms
---@key payloads  hash  timer id -> payload
---@key wake      list  at most one token
---@arg batch     packed  list of {timer_id, 'in' | 'at', ms, payload}: a delay from now, or ms since the epoch
---@arg now_ms    time
---@include send_wakeup
---@include earliest
-- Reply: how many of them are new
-- Sends a wake-up if the earliest due time became earlier: the timekeeper would sleep too long.
-- The same batch again sets the same timers; delays then count from the repetition, so nothing is ever early.

local before = earliest(due)
local added = 0
for _, timer in ipairs(batch) do
  local timer_id, kind, ms, payload = unpack(timer)
  if kind == 'in' then ms = now_ms + ms end
  added = added + redis.call('ZADD', due, ms, timer_id)
  redis.call('HSET', payloads, timer_id, payload)
end
if before == nil or earliest(due) < before then send_wakeup(wake) end
return added
