-- Book at once that the upstream refused a call: its credential rests, and learns, before the answer is committed.
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
---@arg results  packed  one settlement
---@arg now_ms   time
---@include open
---@include book
-- Reply: {ms for which the credential, or its bucket, rests from now on; then what it learned, -1 where it did not:
-- calls at once, calls in a minute, ms until it begins to recover, ms of a step, ms until it has recovered}
-- The same again changes nothing, but that the rest is counted from now. The settlement that follows books it no more.

local result = results[1]
local state = account(result.credential)
if not state then return {0, -1} end
touched[result.credential] = true
if result.pause_ms then book_pause(result, now_ms) end
if result.blocked_ms then book_rest(state, result, now_ms) end
want_open_all(result.credential, result.bucket)
finish(now_ms)
local who, learned = result.rests_bucket and peek(result.credential, result.said_of) or state, state.learned
local rests_ms = math.max(0, (who.blocked_until or 0) - now_ms)
if result.rests_bucket or not learned then return {rests_ms, -1} end
local steps = math.max(state.concurrency - learned.concurrency,
  math.ceil((state.per_minute - learned.per_minute) / math.ceil(state.per_minute / RATE_STEPS)))
local begins_ms = learned.since - now_ms
return {rests_ms, learned.concurrency, learned.per_minute, begins_ms, learned.every_ms, begins_ms + steps * learned.every_ms}
