-- Give a timer that exists another due time; it keeps its payload.
--
---@key due       zset  timer id scored by due ms
---@key wake      list  at most one token
---@arg timer_id  str
---@arg kind      str   'in' or 'at'
---@arg ms        int   a delay from now, or ms since the epoch
---@arg now_ms    time
---@include send_wakeup
---@include earliest
-- Reply: 1 | 0 where there is no such timer, which then is not made
-- Rings when the earliest due time moved forward.

if not redis.call('ZSCORE', due, timer_id) then return 0 end
local before = earliest(due)
redis.call('ZADD', due, kind == 'in' and now_ms + ms or ms, timer_id)
if earliest(due) < before then send_wakeup(wake) end
return 1
