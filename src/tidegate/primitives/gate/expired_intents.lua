-- Return expired enqueue intents: their processes may have died between commit and enqueue, or may be slow.
--
---@key intents   zset  intent, scored by the time of its next check in ms
---@key checks    hash  intent -> number of checks
---@arg first_ms  int   pause after the first check; each later pause is twice as long
---@arg most      int   number of checks after which an intent is removed: no commit takes that long
---@arg now_ms    time
-- Reply: {number of expired intents, ms until the next one expires or -1}
-- A caller without the reply repeats the call; a broken connection triggers a recovery anyway.

local due = redis.call('ZRANGE', intents, '-inf', now_ms, 'BYSCORE')
for _, intent in ipairs(due) do
  local count = redis.call('HINCRBY', checks, intent, 1)
  if count >= most then
    redis.call('ZREM', intents, intent)
    redis.call('HDEL', checks, intent)
  else
    redis.call('ZADD', intents, now_ms + first_ms * 2 ^ (count - 1), intent)
  end
end
local first = redis.call('ZRANGE', intents, 0, 0, 'WITHSCORES')[2]
return {#due, first and math.max(0, tonumber(first) - now_ms) or -1}
