-- Record an enqueue intent. It triggers a recovery unless it is confirmed before it expires.
--
---@key intents   zset  intent, scored by the time of its next check in ms
---@key wake      list  the wake-up of the timekeeper
---@arg intent    str
---@arg check_ms  int   time until the first check
---@arg now_ms    time
---@include send_wakeup
-- Reply: 1
-- Wakes the timekeeper if this intent expires before all others.

-- Intents of one slot of time expire together: a thousand commits that failed must not cause a thousand recoveries.
local slot_ms = check_ms / 4
local check_at = math.ceil((now_ms + check_ms) / slot_ms) * slot_ms
local first = redis.call('ZRANGE', intents, 0, 0, 'WITHSCORES')[2]
redis.call('ZADD', intents, check_at, intent)
if not first or check_at < tonumber(first) then send_wakeup(wake) end
return 1
