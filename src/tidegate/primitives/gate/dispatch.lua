-- Dispatch what may run in all buckets of a pool.
--
---@keyset keys
---@arg pool    str
---@arg now_ms  time
---@include open_gate
---@include dispatch
-- Reply: jobs dispatched

local gate = open_gate(keys, now_ms)
local owners = {'p:' .. pool, 'b:' .. pool}
for _, credential in ipairs(credentials_of(gate, pool)) do owners[#owners + 1] = 'c:' .. credential end
for _, owner in ipairs(owners) do
  for _, bucket in ipairs(waiting_buckets(gate, owner)) do request_dispatch(gate, pool, bucket) end
end
return close_gate(gate)
