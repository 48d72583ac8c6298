-- Add a credential to its pool, or change its settings. What is known of its allowances stays known.
--
---@keyset keys
---@arg credential     str
---@arg pool           str
---@arg concurrency    int
---@arg first          int  calls at once with which a new one begins
---@arg per_minute     int
---@arg one_at_a_time  str  names of buckets, with a bar after each
---@arg floor          int
---@arg floor_share    float
---@arg window_ms      int
---@arg patience_ms    int
---@arg metered        int
---@arg now_ms         time
---@include open_gate
---@include dispatch
-- Reply: {'registered', jobs dispatched} | {'elsewhere', the pool it belongs to, 1 if it is retired there}

-- Calls of the last minute that were restored for this pool: any of its credentials may have made them.
local function restored_calls()
  local at_ms, calls = string.match(redis.call('HGET', keys.pools, 'calls|' .. pool) or '', '^(%d+) (%d+)$')
  return at_ms and {{math.floor(tonumber(at_ms) / SLOT_MS), tonumber(calls)}} or {}
end

-- A small hash with short values only is a list that the server scans for each field, and `permits` has a field for each
-- call in flight. One long value makes it a table.
local PADDING = string.rep('-', 128)

local gate = open_gate(keys, now_ms)
redis.call('HSETNX', keys.permits, '~', PADDING)
local state = read_state(gate, credential)
if state and state.pool ~= '' and state.pool ~= pool then
  return {'elsewhere', state.pool, state.retired and 1 or 0}
end
local was_retired = state and state.retired
if not state then
  state = {in_flight = 0, bound = 0, blocked_until = 0, buckets = {}, minute = restored_calls()}
  if metered == 1 and first < concurrency then state.ramp = first end
end
state.pool, state.retired = pool, nil
state.concurrency, state.per_minute, state.floor = concurrency, per_minute, floor
state.floor_share = floor_share
state.window_ms, state.patience_ms = window_ms, patience_ms
state.one_at_a_time = {}
for bucket in string.gmatch(one_at_a_time, '[^|]+') do state.one_at_a_time[bucket] = true end
gate.states[credential], gate.changed[credential] = state, true
if metered == 1 and state.unmetered then  -- from now on it lists its buckets itself
  state.buckets = buckets_of(gate, credential)
  gate.states[credential .. '|'], gate.changed[credential .. '|'] = false, true
end
state.unmetered = metered == 0 or nil

local names, is_member = credentials_of(gate, pool), false
for _, member in ipairs(names) do is_member = is_member or member == credential end
if not is_member then
  names[#names + 1] = credential
  set_credentials(gate, pool, names)
end
local owners = {'p:' .. pool, 'b:' .. pool, 'c:' .. credential}
if not is_member or was_retired then  -- jobs that wait for others may go to a new one
  for _, member in ipairs(names) do
    if read_state(gate, member).bound > 0 then owners[#owners + 1] = 'c:' .. member end
  end
end
for _, owner in ipairs(owners) do
  for _, bucket in ipairs(waiting_buckets(gate, owner)) do request_dispatch(gate, pool, bucket) end
end
return {'registered', close_gate(gate)}
