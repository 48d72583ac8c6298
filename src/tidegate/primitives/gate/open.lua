-- Look at a pool again: let out what may go.
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
---@arg pool    str
---@arg now_ms  time
---@include open
---@include every_line
-- Reply: jobs let out

for _, bucket in ipairs(buckets_in_line('p:' .. pool)) do want_open(pool, bucket) end
for _, bucket in ipairs(buckets_in_line('b:' .. pool)) do want_open(pool, bucket) end
for _, credential in ipairs(credentials_of(pool)) do
  for _, bucket in ipairs(buckets_in_line('c:' .. credential)) do want_open(pool, bucket) end
end
finish(now_ms)
return let_out
