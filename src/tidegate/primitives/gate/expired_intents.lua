-- Return expired enqueue intents: their processes may have died between commit and enqueue, or may be slow.
--
---@key promises  zset  promise, scored by when to look in ms
---@key looks     hash  promise -> looks so far
---@arg first_ms  int   the pause after the first look; each is twice as long as the one before
---@arg most      int   looks, after which nobody can be that slow
---@arg now_ms    time
-- Reply: {promises to look for now, ms until the next look or -1}
-- A caller that did not get the reply asks again; a broken connection triggers a recovery by itself.

local due = redis.call('ZRANGE', promises, '-inf', now_ms, 'BYSCORE')
for _, promise in ipairs(due) do
  local times = redis.call('HINCRBY', looks, promise, 1)
  if times >= most then
    redis.call('ZREM', promises, promise)
    redis.call('HDEL', looks, promise)
  else
    redis.call('ZADD', promises, now_ms + first_ms * 2 ^ (times - 1), promise)
  end
end
local first = redis.call('ZRANGE', promises, 0, 0, 'WITHSCORES')[2]
return {#due, first and math.max(0, tonumber(first) - now_ms) or -1}
