-- Hold a lease for longer.
--
---@key lease   hash  owner, fence, until_ms
---@arg owner   str
---@arg held    int   the fence under which it is held
---@arg ttl_ms  int
---@arg now_ms  time
---@include extend
-- Reply: 1 | 0 where it ended or passed to somebody else

local holder, fence, until_ms = unpack(redis.call('HMGET', lease, 'owner', 'fence', 'until_ms'))
if holder ~= owner or tonumber(fence) ~= held or tonumber(until_ms) <= now_ms then return 0 end
extend(now_ms, ttl_ms)
return 1
