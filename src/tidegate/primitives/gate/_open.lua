-- Open gates: let out what may go, and see to it that somebody looks again when more may.
---@include serve
---@include pace
---@include hunger
---@include plan
local doors, woken, freed, opened, all_busy = {}, {}, {}, {}, {}

local function sooner(a, b)
  return a and b and math.min(a, b) or a or b
end

-- A job leaves the credential it wanted only where that one is away for long and another can serve now.
local function release_bound(away, pool, bucket, now)
  for _, one in ipairs(away) do
    local state = account(one.credential)
    local is_long = state.retired or (one.again and one.again - now > state.patience_ms)
    if state.bound > 0 and is_long then abandon(one.credential, pool, bucket) end
  end
end

local function anybody_waits(credentials, pool, bucket)
  if heads('p:' .. pool .. '|' .. bucket, 1)[1] then return true end
  read_ahead(credentials)
  for _, group in ipairs(barred_lines(pool, bucket)) do
    if heads(group.line, 1)[1] then return true end
  end
  for _, credential in ipairs(credentials) do
    if account(credential).bound > 0 and heads('c:' .. credential .. '|' .. bucket, 1)[1] then return true end
  end
  return false
end

-- Whether the pace lets nobody call now. Where a call is out, its end opens the gate; else time does, or, where a rest
-- ends before and so the gap may be shorter, that.
local function is_held_up(pace, gap_ms, rest_ends, credentials, pool, bucket, now)
  if is_out(pace, now) then return true end
  if (gap_ms > 0 or pace.alone) and is_crowded(pace, bucket, credentials, now) then return true end
  local at = resumes_at(pace, gap_ms, now)
  if at <= now then return false end
  if anybody_waits(credentials, pool, bucket) then plan('o|' .. pool .. '|' .. bucket, sooner(at, rest_ends)) end
  return true
end

-- Who can make calls, and who cannot; how many need not rest; when the first of those who cannot may.
local function look_around(credentials, bucket, now)
  local able, away, healthy, again = {}, {}, #credentials, nil
  read_books(credentials, bucket)
  for _, credential in ipairs(credentials) do
    local calls, units, at, reason = capacity(credential, bucket, now)
    local list = calls > 0 and able or away
    list[#list + 1] = {credential = credential, calls = calls, units = units, again = at,
      health = health_of(peek(credential, bucket), now), used = account(credential).used or 0}
    again = sooner(again, at)
    if reason == 'retired' or reason == 'blocked' then healthy = healthy - 1 end
  end
  return able, away, healthy, again
end

local function goes_before(a, b)
  if a.units ~= b.units then return a.units > b.units end
  if a.health ~= b.health then return a.health > b.health end
  return a.used < b.used
end

-- Which credential makes the call where one goes at a time: the best of those that may take the job at the front.
-- Else a job that keeps its credential, or that some are barred from, would wait as long as others were better.
local function put_first(able, pool, bucket)
  local first, chosen, ranks = nil, 1, {}
  for n, one in ipairs(able) do
    for _, line in ipairs(lines_of(one.credential, pool, bucket)) do
      if ranks[line] == nil then
        local place = heads(line, 1)[1]
        ranks[line] = place and rank_of(place, line) or false
      end
      local rank = ranks[line]
      if rank and (not first or rank < first or rank == first and goes_before(one, able[chosen])) then
        first, chosen = rank, n
      end
    end
  end
  able[1], able[chosen] = able[chosen], able[1]
end

-- Once nobody of a pool is free, whatever the bucket, that stays so until the script ends: the buckets that follow need
-- not look at everybody again.
local function note_all_busy(pool, credentials, now)
  all_busy[pool] = {}
  for _, credential in ipairs(credentials) do
    local _, at = calls_of(account(credential), now)
    all_busy[pool].till = sooner(all_busy[pool].till, at)
  end
end

local function wait_for_anybody(pool, bucket)
  if all_busy[pool].till then plan('o|' .. pool .. '|' .. bucket, all_busy[pool].till) end
  hunger(pool, bucket)
end

local function open(pool, bucket, now)
  local pace, credentials, is_single = pace_of(pool, bucket), credentials_of(pool), false
  opened[pool .. '|' .. bucket] = true
  if pace and is_held_up(pace, pace.gap_ms, nil, credentials, pool, bucket, now) then return end
  if not anybody_waits(credentials, pool, bucket) then return end
  if all_busy[pool] then
    wait_for_anybody(pool, bucket)
    return
  end
  local able, away, healthy, again = look_around(credentials, bucket, now)
  if pace then
    local gap_ms = gap_now(pace, healthy, #credentials)
    if gap_ms > pace.gap_ms and is_held_up(pace, gap_ms, again, credentials, pool, bucket, now) then return end
    is_single = gap_ms > 0 or pace.alone
  end
  if #able > 0 then release_bound(away, pool, bucket, now) end
  if is_single then put_first(able, pool, bucket) else table.sort(able, goes_before) end
  local before = let_out
  for _, one in ipairs(able) do
    again = sooner(again, serve(one.credential, is_single and 1 or one.calls, one.units, pool, bucket, now))
    if is_single and let_out > before then break end
  end
  if pace and let_out > before then
    unsaved[pace] = true
    if is_single then
      pace.permit = granted[#granted - 1]
      return
    end
    pace.crowd = true
  end
  if not anybody_waits(credentials, pool, bucket) then return end
  local unmetered = 0
  for _, credential in ipairs(credentials) do
    if let_out > before then  -- what was able may be exhausted by now
      local _, _, at = capacity(credential, bucket, now)
      again = sooner(again, at)
    end
    if account(credential).unmetered then unmetered = unmetered + 1 end
  end
  if let_out >= MOST_AT_ONCE then again = now end
  if again then plan('o|' .. pool .. '|' .. bucket, again) end
  if unmetered > 0 then hunger(pool, bucket) end
  if unmetered == #credentials and not anybody_free(pool, now) then note_all_busy(pool, credentials, now) end
end

local function want_open(pool, bucket)
  doors[pool .. '|' .. bucket] = {pool, bucket}
end

-- A call in `bucket` has ended. Calls at once are counted for all buckets together, so it may make room in any.
local function want_open_all(credential, bucket)
  local state = account(credential)
  if state.left then
    for pool in pairs(state.left) do want_open(pool, bucket) end
  end
  if state.pool == '' then return end
  if state.unmetered then
    freed[state.pool] = true
    want_open(state.pool, bucket)
  end
  if woken[credential] then return end
  woken[credential] = true
  for _, known in ipairs(state.buckets) do want_open(state.pool, known) end
end

-- Write down everything; to be called once, at the end of a script.
local function finish(now)
  take_places()
  for pool in pairs(freed) do feed(pool, open, now) end  -- first, or a bucket with many jobs would keep whom it has
  for name, door in pairs(doors) do
    if not opened[name] then open(door[1], door[2], now) end
  end
  if let_out > 0 then
    redis.call('HSET', permits, unpack(granted))
    redis.call('HSET', inside, unpack(outside))
  end
  close_lanes()
  close_queues()
  close_paces()
  close_ledger()
end
