-- Take a credential out of its pool. Calls in flight end as they will; jobs that wanted it go to the others.
--
---@key waiting     zset    line|class|turn|job
---@key lanes       hash    turns of pools and runs
---@key inside      hash    job -> record or permit
---@key permits     hash    permit -> credential|bucket|cost|job
---@key allowances  hash    credential or credential|bucket -> its state
---@key pools       hash    pool -> credentials
---@key due         zset    what happens later
---@key stream      stream  jobs that may run
---@key wake        list    the timekeeper's doorbell
---@arg credential  str
---@arg now_ms      time
---@include open
---@include every_line
-- Reply: jobs that changed lines; call again until it is 0

local state = account(credential)
if not state then return 0 end
state.retired, touched[credential] = true, true
local remaining = {}
for _, member in ipairs(credentials_of(state.pool)) do
  if member ~= credential then remaining[#remaining + 1] = member end
end
if #remaining > 0 then
  redis.call('HSET', pools, state.pool, cmsgpack.pack(remaining))
else
  redis.call('HDEL', pools, state.pool)
end
local moved = 0
for _, bucket in ipairs(buckets_in_line('c:' .. credential)) do
  moved = moved + abandon(credential, state.pool, bucket)
  want_open(state.pool, bucket)
end
finish(now_ms)
return moved
