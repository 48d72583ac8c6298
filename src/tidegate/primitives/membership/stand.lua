-- Stand for election: the first candidate without a living leader becomes the leader, as long as its lease lasts.
--
---@key membership  zset    owner scored by the ms at which its lease ends
---@key leader    hash    owner, fence
---@key fence     string  the greatest fence that was given
---@key vacancy   list    at most one token
---@key accepted_writes   hash    since, last
---@arg owner     str
---@arg gap_ms    int
---@arg now_ms    time
---@include next_fence
---@include record_accepted_write
-- Reply: {'elected', fence} | {'following', ms for which the leader's lease still lasts} | {'absent'}
-- A leader that stands again gets the same fence.

local function lasts(who)
  return tonumber(redis.call('ZSCORE', membership, who) or 0) - now_ms
end

-- Followers stand more often when the leader is late, so its successor knows at once that it could have renewed.
record_accepted_write(accepted_writes, gap_ms, false, now_ms)
if lasts(owner) <= 0 then return {'absent'} end
local holder, held_fence = unpack(redis.call('HMGET', leader, 'owner', 'fence'))
if holder == owner then return {'elected', tonumber(held_fence)} end
if holder and lasts(holder) > 0 then return {'following', lasts(holder)} end
local new_fence = next_fence(fence, now_ms)
redis.call('HSET', leader, 'owner', owner, 'fence', new_fence)
redis.call('DEL', vacancy)
return {'elected', new_fence}
