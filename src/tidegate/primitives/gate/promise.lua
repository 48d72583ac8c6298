-- Somebody is about to commit jobs and then to offer them. If he does not come back, others must look for them.
--
---@key promises  zset  promise, scored by when to look in ms
---@key wake      list  the timekeeper's doorbell
---@arg promise   str
---@arg look_ms   int   how soon
---@arg now_ms    time
---@include ring
-- Reply: 1
-- Rings where it is the first to come due: the timekeeper may sleep for longer.

local first = redis.call('ZRANGE', promises, 0, 0, 'WITHSCORES')[2]
redis.call('ZADD', promises, now_ms + look_ms, promise)
if not first or now_ms + look_ms < tonumber(first) then ring() end
return 1
