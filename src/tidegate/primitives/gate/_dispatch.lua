-- Dispatch jobs of a bucket: those that may run now go to the stream; for the others the next attempt is scheduled.
---@include grant_permits
---@include pace
---@include starved
---@include schedule

local function earlier(a, b)
  return a and b and math.min(a, b) or a or b
end

-- A job leaves the credential it wants only where that one is unavailable for long and another can serve now.
local function release_from_unavailable(gate, unavailable, bucket)
  for _, one in ipairs(unavailable) do
    local credential = read_state(gate, one.credential)
    local is_long = credential.retired or (one.again_at and one.again_at - gate.now > credential.patience_ms)
    if credential.bound > 0 and is_long then release_affinity(gate, one.credential, bucket) end
  end
end

-- Whether the pace allows no call now. Where a call is in flight, its end dispatches the next; else time does. A block
-- that ends before may make the gap shorter, so that is the time to try again.
local function is_held_by_pace(gate, pace, gap_ms, block_ends_at, credentials, pool, bucket)
  if has_call_in_flight(gate, pace) then return true end
  if (gap_ms > 0 or pace.one_at_a_time) and has_other_calls(gate, pace, bucket, credentials) then return true end
  local at = next_call_at(gate, pace, gap_ms)
  if at <= gate.now then return false end
  if has_waiting_jobs(gate, credentials, pool, bucket) then
    schedule(gate.keys, 'd|' .. pool .. '|' .. bucket, earlier(at, block_ends_at))
  end
  return true
end

-- Returns the credentials that can make calls, those that cannot, how many are not blocked, and when the first of those
-- that cannot may.
local function split_by_capacity(gate, credentials, bucket)
  local available, unavailable, healthy, again_at = {}, {}, #credentials, nil
  prefetch_allowances(gate, credentials, bucket)
  for _, name in ipairs(credentials) do
    local calls, units, at, reason = capacity_of(gate, name, bucket)
    local list = calls > 0 and available or unavailable
    list[#list + 1] = {credential = name, calls = calls, units = units, again_at = at,
      health = health_of(peek_allowance(gate, name, bucket), gate.now),
      last_permit = read_state(gate, name).last_permit or 0}
    again_at = earlier(again_at, at)
    if reason == 'retired' or reason == 'blocked' then healthy = healthy - 1 end
  end
  return available, unavailable, healthy, again_at
end

local function is_preferred(a, b)
  if a.units ~= b.units then return a.units > b.units end
  if a.health ~= b.health then return a.health > b.health end
  return a.last_permit < b.last_permit
end

-- Where there is one call at a time: put the preferred one of the credentials that may take the very first job in front.
-- Otherwise a job that keeps its credential, or that some are excluded from, would wait while others were preferred.
local function put_first(gate, available, pool, bucket)
  local first, chosen, ranks = nil, 1, {}
  for n, one in ipairs(available) do
    for _, queue in ipairs(queues_of(gate, one.credential, pool, bucket)) do
      if ranks[queue] == nil then
        local position = first_positions(gate, queue, 1)[1]
        ranks[queue] = position and rank_of(position, queue) or false
      end
      local rank = ranks[queue]
      if rank and (not first or rank < first or rank == first and is_preferred(one, available[chosen])) then
        first, chosen = rank, n
      end
    end
  end
  available[1], available[chosen] = available[chosen], available[1]
end

-- Once no credential of a pool is free in any bucket, that stays so until the script ends. The buckets that follow need
-- not visit all credentials again.
local function mark_busy(gate, pool, credentials)
  local free_at = nil
  for _, credential in ipairs(credentials) do
    local _, at = calls_available(read_state(gate, credential), gate.now)
    free_at = earlier(free_at, at)
  end
  gate.busy[pool] = {free_at = free_at}
end

-- Jobs of the bucket still wait: see to it that dispatching goes on when there is more capacity.
local function dispatch_later(gate, pool, bucket, credentials, again_at, has_dispatched)
  local unmetered = 0
  for _, name in ipairs(credentials) do
    if has_dispatched then  -- what had capacity may have none by now
      local _, _, at = capacity_of(gate, name, bucket)
      again_at = earlier(again_at, at)
    end
    if read_state(gate, name).unmetered then unmetered = unmetered + 1 end
  end
  if gate.dispatched >= MOST_AT_ONCE then again_at = gate.now end
  if again_at then schedule(gate.keys, 'd|' .. pool .. '|' .. bucket, again_at) end
  if unmetered > 0 then mark_starved(gate, pool, bucket) end
  if unmetered == #credentials and not has_free_credential(gate, pool) then mark_busy(gate, pool, credentials) end
end

-- Dispatch what may run in a bucket of a pool.
local function dispatch(gate, pool, bucket)
  local pace, credentials, is_single = pace_of(gate, pool, bucket), credentials_of(gate, pool), false
  gate.visited[pool .. '|' .. bucket] = true
  if pace and is_held_by_pace(gate, pace, pace.gap_ms, nil, credentials, pool, bucket) then return end
  if not has_waiting_jobs(gate, credentials, pool, bucket) then return end
  if gate.busy[pool] then
    local free_at = gate.busy[pool].free_at
    if free_at then schedule(gate.keys, 'd|' .. pool .. '|' .. bucket, free_at) end
    mark_starved(gate, pool, bucket)
    return
  end
  local available, unavailable, healthy, again_at = split_by_capacity(gate, credentials, bucket)
  if pace then
    local gap_ms = current_gap_ms(pace, healthy, #credentials)
    local is_longer = gap_ms > pace.gap_ms
    if is_longer and is_held_by_pace(gate, pace, gap_ms, again_at, credentials, pool, bucket) then return end
    is_single = gap_ms > 0 or pace.one_at_a_time
  end
  if #available > 0 then release_from_unavailable(gate, unavailable, bucket) end
  if is_single then put_first(gate, available, pool, bucket) else table.sort(available, is_preferred) end
  local before = gate.dispatched
  for _, one in ipairs(available) do
    local calls = is_single and 1 or one.calls
    again_at = earlier(again_at, grant_permits(gate, one.credential, calls, one.units, pool, bucket))
    if is_single and gate.dispatched > before then break end
  end
  local has_dispatched = gate.dispatched > before
  if pace and has_dispatched then
    gate.changed_paces[pace] = true
    if is_single then
      pace.permit = gate.granted[#gate.granted - 1]
      return
    end
    pace.has_others = true
  end
  if not has_waiting_jobs(gate, credentials, pool, bucket) then return end
  dispatch_later(gate, pool, bucket, credentials, again_at, has_dispatched)
end

-- Have `close_gate` dispatch a bucket.
local function request_dispatch(gate, pool, bucket)
  gate.requested[pool .. '|' .. bucket] = {pool, bucket}
end

-- A call in `bucket` ended: have `close_gate` dispatch every bucket in which that may make room. Calls at once are counted
-- for all buckets together.
local function request_dispatch_after_call(gate, name, bucket)
  local credential = read_state(gate, name)
  if credential.left_pools then
    for pool in pairs(credential.left_pools) do request_dispatch(gate, pool, bucket) end
  end
  if credential.pool == '' then return end
  if credential.unmetered then
    gate.freed[credential.pool] = true
    request_dispatch(gate, credential.pool, bucket)
  end
  if gate.requested_all[name] then return end
  gate.requested_all[name] = true
  for _, known in ipairs(credential.buckets) do request_dispatch(gate, credential.pool, known) end
end

-- Dispatch what was requested and write all changes. To be called once, at the end of a script. Returns how many jobs
-- were dispatched.
local function close_gate(gate)
  save_arrivals(gate)
  -- First, or a bucket with many jobs would keep the credentials that it has.
  for pool in pairs(gate.freed) do serve_starved(gate, pool, dispatch) end
  for name, requested in pairs(gate.requested) do
    if not gate.visited[name] then dispatch(gate, requested[1], requested[2]) end
  end
  if gate.dispatched > 0 then
    redis.call('HSET', gate.keys.permits, unpack(gate.granted))
    redis.call('HSET', gate.keys.jobs, unpack(gate.dispatched_jobs))
  end
  save_turns(gate)
  save_starved(gate)
  save_paces(gate)
  save_credentials(gate)
  return gate.dispatched
end
