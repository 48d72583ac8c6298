-- How fast a bucket is called, by all credentials of its pool together.
--
-- A pace (field `pace|pool|bucket` of `pools`): gap_ms; one_at_a_time (one call at a time, even without a gap); ended_at
-- (when the last call ended); permit (of the call in flight: it has ended when its permit is gone, whatever the outcome);
-- paused_until; has_others (calls may be in flight that were dispatched without a gap, so `permit` does not name them)
---@include credentials
local LEAST_GAP_MS = 1000   -- between calls while most credentials are blocked
local MOST_DOUBLINGS = 6

-- Read together with the pool, since `dispatch` needs both. nil where there is none.
local function pace_of(gate, pool, bucket)
  local field = 'pace|' .. pool .. '|' .. bucket
  if gate.paces[field] == nil then
    local read = redis.call('HMGET', gate.keys.pools, field, pool)
    gate.paces[field] = read[1] and cmsgpack.unpack(read[1]) or false
    gate.members[pool] = gate.members[pool] or read[2] and cmsgpack.unpack(read[2]) or {}
  end
  return gate.paces[field] or nil
end

-- The pace to change; it is made where there is none, and then counts from now.
local function pace_to_change(gate, pool, bucket)
  local pace = pace_of(gate, pool, bucket) or {gap_ms = 0, ended_at = gate.now, paused_until = 0, has_others = true}
  gate.paces['pace|' .. pool .. '|' .. bucket], gate.changed_paces[pace] = pace, true
  return pace
end

local function pause_bucket(gate, pool, bucket, till)
  local pace = pace_to_change(gate, pool, bucket)
  pace.paused_until = math.max(pace.paused_until, till)
end

-- Whether the call of `pace.permit` is in flight. The gap begins when it is found to have ended; a request that was not
-- sent does not begin one.
local function has_call_in_flight(gate, pace)
  if not pace.permit then return false end
  if redis.call('HEXISTS', gate.keys.permits, pace.permit) == 1 then return true end
  if not gate.unused[pace.permit] then pace.ended_at = gate.now end
  pace.permit, gate.changed_paces[pace] = nil, true
  return false
end

-- Whether calls are in flight that `pace.permit` does not name: their credentials hold units.
local function has_other_calls(gate, pace, bucket, credentials)
  if not pace.has_others then return false end
  prefetch_allowances(gate, credentials, bucket)
  for _, credential in ipairs(credentials) do
    if peek_allowance(gate, credential, bucket).held > 0 then return true end
  end
  pace.has_others, pace.ended_at, gate.changed_paces[pace] = nil, gate.now, true
  return false
end

-- When the next call may be made. A clock that was set back must not make the gap longer.
local function next_call_at(gate, pace, gap_ms)
  if pace.ended_at > gate.now then pace.ended_at, gate.changed_paces[pace] = gate.now, true end
  return math.max(pace.paused_until, pace.ended_at + gap_ms)
end

-- The gap at present. Where few credentials are left that are not blocked, the others would be blocked next: from a fifth
-- on there is one call at a time, and with each halving of the share half as many calls. They never stop, since a call
-- finds out that the block is over.
local function current_gap_ms(pace, healthy, all)
  local doublings = 0
  while healthy * 5 * 2 ^ doublings < all and doublings < MOST_DOUBLINGS do doublings = doublings + 1 end
  return doublings == 0 and pace.gap_ms or math.max(pace.gap_ms, LEAST_GAP_MS) * 2 ^ doublings
end

local function save_paces(gate)
  for field, pace in pairs(gate.paces) do
    if pace and gate.changed_paces[pace] then redis.call('HSET', gate.keys.pools, field, cmsgpack.pack(pace)) end
  end
end
