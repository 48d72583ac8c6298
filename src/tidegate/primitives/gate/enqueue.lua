-- Add jobs: each waits in its queue, or is dispatched at once if there is a permit.
--
---@keyset keys
---@arg new_jobs  packed
---@arg now_ms    time
---@include open_gate
---@include enqueue
-- Reply: {jobs that were new, jobs dispatched}
-- Idempotent: a job that is known already is left as it is.

local gate = open_gate(keys, now_ms)
local added = enqueue(gate, new_jobs)
return {added, close_gate(gate)}
