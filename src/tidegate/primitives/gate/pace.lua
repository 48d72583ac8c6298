-- Say how fast a bucket may be called, and that it rests for a while.
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
---@arg pool     str
---@arg bucket   str
---@arg gap_ms   int
---@arg alone    int
---@arg rest_ms  int
---@arg now_ms   time
---@include open
-- Reply: jobs let out
-- The same again changes nothing, but that a rest is counted from now.

local pace = pace_for(pool, bucket, now_ms)
pace.gap_ms, pace.alone = gap_ms, alone == 1 or nil
if rest_ms > 0 then pause(pool, bucket, now_ms + rest_ms, now_ms) end
want_open(pool, bucket)
finish(now_ms)
return let_out
