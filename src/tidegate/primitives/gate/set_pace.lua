-- Set how fast a bucket may be called, and pause it.
--
---@keyset keys
---@arg pool           str
---@arg bucket         str
---@arg gap_ms         int
---@arg one_at_a_time  int
---@arg pause_ms       int
---@arg now_ms         time
---@include open_gate
---@include dispatch
-- Reply: jobs dispatched
-- Idempotent, except that a pause is counted from now.

local gate = open_gate(keys, now_ms)
local pace = pace_to_change(gate, pool, bucket)
pace.gap_ms, pace.one_at_a_time = gap_ms, one_at_a_time == 1 or nil
if pause_ms > 0 then pause_bucket(gate, pool, bucket, now_ms + pause_ms) end
request_dispatch(gate, pool, bucket)
return close_gate(gate)
