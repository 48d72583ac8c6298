-- Take a lease that nobody holds.
--
---@key lease   hash    owner, fence, until_ms
---@key fence   string  the greatest fence that was given
---@arg owner   str
---@arg ttl_ms  int
---@arg now_ms  time
---@include next_fence
---@include extend
-- Reply: {'held', fence} | {'taken', ms until it can be free}
-- The holder who asks again holds it for longer, with the same fence.

local holder, held_fence, until_ms = unpack(redis.call('HMGET', lease, 'owner', 'fence', 'until_ms'))
if holder and tonumber(until_ms) > now_ms then
  if holder ~= owner then return {'taken', tonumber(until_ms) - now_ms} end
  extend(now_ms, ttl_ms)
  return {'held', tonumber(held_fence)}
end
local new_fence = next_fence(now_ms)
redis.call('HSET', lease, 'owner', owner, 'fence', new_fence)
extend(now_ms, ttl_ms)
return {'held', new_fence}
