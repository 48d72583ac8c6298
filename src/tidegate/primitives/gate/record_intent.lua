-- Record an enqueue intent. It triggers a recovery unless it is confirmed before it expires.
--
---@key promises  zset  promise, scored by when to look in ms
---@key wake      list  the timekeeper's wakeup
---@arg promise   str
---@arg look_ms   int   how soon
---@arg now_ms    time
---@include send_wakeup
-- Reply: 1
-- Wakes the timekeeper if this intent expires before all others.

-- EnqueueIntents of one slot of time come due together: a thousand commits that failed must not cause a thousand recoveries.
local slot_ms = look_ms / 4
local look_at = math.ceil((now_ms + look_ms) / slot_ms) * slot_ms
local first = redis.call('ZRANGE', promises, 0, 0, 'WITHSCORES')[2]
redis.call('ZADD', promises, look_at, promise)
if not first or look_at < tonumber(first) then send_wakeup(wake) end
return 1
