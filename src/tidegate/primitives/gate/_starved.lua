-- Buckets of a pool with jobs that wait until a call of any bucket ends, in the order in which they began to wait.
--
-- An unmetered credential may have a thousand buckets. When one of its calls ends, only the buckets listed here (field
-- `starved|pool` of `pools`) are visited, and only while a credential is free.
---@include capacity

-- {buckets = list, has = set of the same, is_changed}
local function starved_buckets(gate, pool)
  if not gate.starved[pool] then
    local packed = redis.call('HGET', gate.keys.pools, 'starved|' .. pool)
    local starved = {buckets = packed and cmsgpack.unpack(packed) or {}, has = {}}
    for _, bucket in ipairs(starved.buckets) do starved.has[bucket] = true end
    gate.starved[pool] = starved
  end
  return gate.starved[pool]
end

local function mark_starved(gate, pool, bucket)
  local starved = starved_buckets(gate, pool)
  if starved.has[bucket] then return end
  starved.buckets[#starved.buckets + 1] = bucket
  starved.has[bucket], starved.is_changed = true, true
end

-- Whether an unmetered credential of the pool can make a call in some bucket. Within a script they only get fewer.
local function has_free_credential(gate, pool)
  if not gate.idle[pool] then
    local names, idle = credentials_of(gate, pool), {}
    prefetch_states(gate, names)
    for _, name in ipairs(names) do
      local credential = read_state(gate, name)
      if credential.unmetered then idle[#idle + 1] = credential end
    end
    gate.idle[pool] = idle
  end
  local idle = gate.idle[pool]
  while #idle > 0 and calls_available(idle[#idle], gate.now) == 0 do idle[#idle] = nil end
  return #idle > 0
end

-- Call `dispatch` for the buckets that wait longest, while a credential is free. A bucket with waiting jobs is
-- appended again.
local function serve_starved(gate, pool, dispatch)
  local starved = starved_buckets(gate, pool)
  local last, served = #starved.buckets, 0
  while served < last and has_free_credential(gate, pool) do
    served = served + 1
    local bucket = starved.buckets[served]
    starved.has[bucket] = nil
    dispatch(gate, pool, bucket)
  end
  if served == 0 then return end
  local rest = {}
  for n = served + 1, #starved.buckets do rest[#rest + 1] = starved.buckets[n] end
  starved.buckets, starved.is_changed = rest, true
end

local function save_starved(gate)
  for pool, starved in pairs(gate.starved) do
    if starved.is_changed and #starved.buckets > 0 then
      redis.call('HSET', gate.keys.pools, 'starved|' .. pool, cmsgpack.pack(starved.buckets))
    elseif starved.is_changed then
      redis.call('HDEL', gate.keys.pools, 'starved|' .. pool)
    end
  end
end
