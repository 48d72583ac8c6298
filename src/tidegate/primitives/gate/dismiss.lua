-- Take a credential out of its pool. Calls in flight end as usual; jobs that wanted it go to the others.
--
---@keyset keys
---@arg credential  str
---@arg now_ms      time
---@include open_gate
---@include dispatch
-- Reply: jobs that changed queues; call again until it is 0, and only then it is out
-- It is retired first and leaves last: a crash between two calls leaves no job in a queue that no credential serves.

local gate = open_gate(keys, now_ms)
local state = read_state(gate, credential)
if not state or state.pool == '' then return 0 end
state.retired, gate.changed[credential] = true, true
local pool, moved = state.pool, 0
for _, bucket in ipairs(waiting_buckets(gate, 'c:' .. credential)) do
  moved = moved + release_affinity(gate, credential, bucket)
  request_dispatch(gate, pool, bucket)
end
if moved == 0 then
  local others = {}
  for _, member in ipairs(credentials_of(gate, pool)) do
    if member ~= credential then others[#others + 1] = member end
  end
  set_credentials(gate, pool, others)
  state.pool = ''
  if state.in_flight > 0 then
    state.left_pools = state.left_pools or {}
    state.left_pools[pool] = true
  else
    delete_credential(gate, credential)
  end
end
close_gate(gate)
return moved
