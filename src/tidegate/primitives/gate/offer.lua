-- Take jobs in: each waits in its lane, or goes straight through if there is a permit.
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
---@arg offers  packed
---@arg now_ms  time
---@include offer
-- Reply: {jobs that were new, jobs let out}
-- The same job again changes nothing.

local entered = offer_all(offers, now_ms)
finish(now_ms)
return {entered, let_out}
