-- Declare processes dead if their lease has ended although they could have renewed it.
--
---@key membership  zset  owner scored by the ms at which its lease ends
---@key dead      set   owners whose messages are to be taken over
---@key accepted_writes   hash  since, last
---@arg owner     str   who asks; never declared dead
---@arg limit     int
---@arg proof_ms  int   for how long the server must have accepted writes: a living process tries several times in it
---@arg gap_ms    int   how far apart two writes may be that prove this
---@arg was_refused      int   1 where the caller was refused since it last asked
---@arg ttl_ms       int   how long a lease lasts
---@arg expected_ms  int   the server's time as the caller expects it by its monotonic clock; 0 where it has no idea
---@arg now_ms    time
---@include record_accepted_write
---@include correct_leases
-- Reply: {{owner, ...} that are dead now, ms until to ask again: 0 if there are more, -1 if there is no other process,
-- the server's time}
-- A server that refuses writes refuses this script. After that, and after any other pause, no process is declared dead
-- before live processes had the time to renew. A live one that is declared dead learns it from its next renewal.

local since = record_accepted_write(accepted_writes, gap_ms, was_refused == 1, now_ms)
local is_proven = now_ms - since >= proof_ms
correct_leases(membership, expected_ms, proof_ms, ttl_ms, now_ms)
local declared, suspects = {}, 0
for _, other in ipairs(redis.call('ZRANGEBYSCORE', membership, '-inf', now_ms, 'LIMIT', 0, limit + 1)) do
  if other ~= owner then
    suspects = suspects + 1
    if is_proven and #declared < limit then
      redis.call('ZREM', membership, other)
      redis.call('SADD', dead, other)
      declared[#declared + 1] = other
    end
  end
end
if suspects > #declared then
  if is_proven then return {declared, 0, now_ms} end
  return {declared, math.max(1, math.min(math.floor(proof_ms / 3), since + proof_ms - now_ms)), now_ms}
end
-- The writes that prove it begin before the lease ends, so that its end need not be waited for twice.
local alive = redis.call('ZRANGEBYSCORE', membership, '(' .. now_ms, '+inf', 'WITHSCORES', 'LIMIT', 0, 2)
local first_ms = tonumber(alive[alive[1] == owner and 4 or 2])
if not first_ms then return {declared, -1, now_ms} end
local lasts_ms = first_ms - now_ms
if lasts_ms > proof_ms then return {declared, lasts_ms - proof_ms, now_ms} end
return {declared, math.max(1, math.min(math.floor(proof_ms / 3), lasts_ms)), now_ms}
