-- Give a lease up, if it is still held under this fence.
--
---@key lease  hash  owner, fence, until_ms
---@arg owner  str
---@arg held   int   the fence under which it is held
-- Reply: 1 | 0 where it was gone

local holder, fence = unpack(redis.call('HMGET', lease, 'owner', 'fence'))
if holder ~= owner or tonumber(fence) ~= held then return 0 end
return redis.call('DEL', lease)
