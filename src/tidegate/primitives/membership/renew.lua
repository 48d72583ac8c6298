-- A process is still alive. Called all the time by all of them, so it costs two commands.
--
---@key membership     zset  owner scored by the ms at which its lease ends
---@arg owner        str
---@arg known_ms     int   when the lease ends, as far as the owner knows
---@arg ttl_ms       int
---@arg now_ms       time
-- Reply: {'renewed' | 'resumed', the ms at which it ends now} | {'removed'}
-- 'resumed': the lease had ended and the owner was not removed yet; other processes may have treated it as dead.

local until_ms = now_ms + ttl_ms
if redis.call('ZADD', membership, 'XX', 'CH', until_ms, owner) == 0 and not redis.call('ZSCORE', membership, owner) then
  return {'removed'}
end
return {known_ms > now_ms and 'renewed' or 'resumed', until_ms}
