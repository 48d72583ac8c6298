-- Record at once that the upstream refused a call: its credential is blocked before the answer is committed.
--
---@keyset keys
---@arg results  packed  one settlement
---@arg now_ms   time
---@include open_gate
---@include dispatch
---@include record_result
-- Reply: {ms for which the credential, or its bucket, is blocked; then its learned limits, -1 where there are none:
-- calls at once, calls in a minute, ms until they begin to recover, ms of a step, ms until they have recovered}
-- Idempotent, except that the block is counted from now. The settlement that follows does not record it again.

local gate, result = open_gate(keys, now_ms), results[1]
local state = read_state(gate, result.credential)
if not state then return {0, -1} end
gate.changed[result.credential] = true
if result.pause_ms then record_pause(gate, result) end
if result.blocked_ms then record_block(gate, state, result) end
request_dispatch_after_call(gate, result.credential, result.bucket)
close_gate(gate)

local blocked = result.rests_bucket and peek_allowance(gate, result.credential, result.said_of) or state
local blocked_ms = math.max(0, (blocked.blocked_until or 0) - now_ms)
local learned = state.learned
if result.rests_bucket or not learned then return {blocked_ms, -1} end
local steps = math.max(state.concurrency - learned.concurrency,
  math.ceil((state.per_minute - learned.per_minute) / math.ceil(state.per_minute / RATE_STEPS)))
local begins_ms = learned.since - now_ms
return {blocked_ms, learned.concurrency, learned.per_minute, begins_ms, learned.every_ms,
  begins_ms + steps * learned.every_ms}
