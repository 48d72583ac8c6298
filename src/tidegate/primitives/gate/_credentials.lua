-- Credentials and their allowances: read once per call, kept in `gate.states`, written back by `save_credentials`.
--
-- A credential (field `name`):
--   pool           '' once it was dismissed while calls were in flight
--   concurrency, per_minute, floor, floor_share, window_ms, patience_ms, unmetered,
--   one_at_a_time = {bucket = true}    its settings
--   in_flight      calls in flight; bound: waiting jobs that want this credential; last_permit: its newest permit
--   minute         {{slot, calls}, ...} of the last minute
--   blocked_until, blocks (that followed each other), must_probe (one call finds out whether the block is over)
--   learned        {concurrency, per_minute, since, every_ms, permit}: limits after refusals
--   ramp           calls at once that it has worked up to; nil: no bound
--   retired        may make no call; left_pools = {pool = true}: pools it left with calls in flight
--   buckets        {name, ...}
-- An allowance (field `name|bucket`):
--   limit, remaining   what the upstream said last, the least within one window
--   held, lost         units of calls in flight; units of calls with unknown outcome; lost_at: when the last was lost
--   window, resets_at  the upstream's name of the window (its reset time); its end by our clock
--   is_fresh           the window ended by our clock and counts as full; late answers about the old one do not matter
--   windows_ended      how many windows ended so far by our clock: tells whether a call was made before or after
--   blocked_until, blocks, must_probe    as above, for this bucket only
--   health, health_at  see `health_of`
-- An unmetered credential may have a bucket for each of a thousand hosts. They are listed in the field `name|`, which is
-- read where it is needed, and have an allowance once there is something to note in it.
local MOST_FIELDS = 1000  -- in one command: the server's Lua passes some thousands of arguments, not more

-- The state of a credential or an allowance; nil where there is none.
local function read_state(gate, field)
  local states = gate.states
  if states[field] == nil then
    local packed = redis.call('HGET', gate.keys.credentials, field)
    states[field] = packed and cmsgpack.unpack(packed) or false
  end
  return states[field] or nil
end

-- Read many states in a few commands.
local function prefetch_states(gate, fields)
  local states, missing = gate.states, {}
  for _, field in ipairs(fields) do
    if states[field] == nil then missing[#missing + 1] = field end
  end
  for first = 1, #missing, MOST_FIELDS do
    local last = math.min(first + MOST_FIELDS - 1, #missing)
    for n, packed in ipairs(redis.call('HMGET', gate.keys.credentials, unpack(missing, first, last))) do
      states[missing[first + n - 1]] = packed and cmsgpack.unpack(packed) or false
    end
  end
end

-- Read credentials with their allowances of one bucket.
local function prefetch_allowances(gate, credentials, bucket)
  local fields = {}
  for _, credential in ipairs(credentials) do
    fields[#fields + 1] = credential
    fields[#fields + 1] = credential .. '|' .. bucket
  end
  prefetch_states(gate, fields)
end

local function new_allowance()
  return {held = 0, lost = 0, lost_at = 0, windows_ended = 0}
end

-- The allowance to read; an empty one where there is none. Changes to it are not written.
local function peek_allowance(gate, credential, bucket)
  return read_state(gate, credential .. '|' .. bucket) or new_allowance()
end

-- Add a bucket to those of a credential.
local function list_bucket(gate, credential, bucket)
  local owner, list = read_state(gate, credential), credential
  local names = owner.buckets
  if owner.unmetered then
    list = credential .. '|'
    names = read_state(gate, list) or {}
    gate.states[list] = names
  end
  names[#names + 1] = bucket
  gate.changed[list] = true
end

-- The allowance to change; it is made where there is none.
local function allowance_of(gate, credential, bucket)
  local field = credential .. '|' .. bucket
  local allowance = read_state(gate, field)
  if not allowance then
    allowance = new_allowance()
    gate.states[field] = allowance
    list_bucket(gate, credential, bucket)
  end
  gate.changed[field] = true
  return allowance
end

-- The names of all buckets of a credential.
local function buckets_of(gate, credential)
  local names = {}
  for _, list in ipairs({read_state(gate, credential).buckets, read_state(gate, credential .. '|') or {}}) do
    for _, bucket in ipairs(list) do names[#names + 1] = bucket end
  end
  return names
end

-- The names of the credentials of a pool.
local function credentials_of(gate, pool)
  if not gate.members[pool] then
    local packed = redis.call('HGET', gate.keys.pools, pool)
    gate.members[pool] = packed and cmsgpack.unpack(packed) or {}
  end
  return gate.members[pool]
end

local function set_credentials(gate, pool, names)
  gate.members[pool] = names
  if #names > 0 then
    redis.call('HSET', gate.keys.pools, pool, cmsgpack.pack(names))
  else
    redis.call('HDEL', gate.keys.pools, pool)
  end
end

-- Delete a credential that was dismissed and has no call in flight any more.
local function delete_credential(gate, credential)
  local fields = {credential, credential .. '|'}
  for _, bucket in ipairs(buckets_of(gate, credential)) do fields[#fields + 1] = credential .. '|' .. bucket end
  for _, field in ipairs(fields) do gate.states[field], gate.changed[field] = false, true end
end

local function save_credentials(gate)
  for field in pairs(gate.changed) do
    if gate.states[field] then
      redis.call('HSET', gate.keys.credentials, field, cmsgpack.pack(gate.states[field]))
    else
      redis.call('HDEL', gate.keys.credentials, field)
    end
  end
end
