-- How fast a bucket is called, by all credentials of its pool together.
--
-- A pace (field `pace|pool|bucket` of `pools`): gap_ms, alone (one call at a time, even without a gap), ended_at (when the
-- last call did), permit (the call that is out: it has ended when its permit is gone, however that went), rests_until,
-- crowd (calls may be out that were let out without counting, as there was no gap)
---@key pools    hash  pace|pool|bucket -> its pace
---@key permits  hash  permit -> credential|bucket|cost|job
---@include ledger
local TRIAL_GAP_MS, MOST_DOUBLED = 1000, 6
local paces, unsaved, unused = {}, {}, {}

-- Read together with the pool, as whoever opens a gate needs both.
local function pace_of(pool, bucket)
  local field = 'pace|' .. pool .. '|' .. bucket
  if paces[field] == nil then
    local told = redis.call('HMGET', pools, field, pool)
    paces[field] = told[1] and cmsgpack.unpack(told[1]) or false
    members[pool] = members[pool] or told[2] and cmsgpack.unpack(told[2]) or {}
  end
  return paces[field] or nil
end

-- To write in. A new one counts from now.
local function pace_for(pool, bucket, now)
  local pace = pace_of(pool, bucket) or {gap_ms = 0, ended_at = now, rests_until = 0, crowd = true}
  paces['pace|' .. pool .. '|' .. bucket], unsaved[pace] = pace, true
  return pace
end

local function pause(pool, bucket, till, now)
  local pace = pace_for(pool, bucket, now)
  pace.rests_until = math.max(pace.rests_until, till)
end

-- Whether a call is out. The gap begins when it is found to have ended; a call that was never made ends nothing.
local function is_out(pace, now)
  if not pace.permit then return false end
  if redis.call('HEXISTS', permits, pace.permit) == 1 then return true end
  if not unused[pace.permit] then pace.ended_at = now end
  pace.permit, unsaved[pace] = nil, true
  return false
end

-- Calls that nobody counted are known by what their credentials hold.
local function is_crowded(pace, bucket, credentials, now)
  if not pace.crowd then return false end
  read_books(credentials, bucket)
  for _, credential in ipairs(credentials) do
    if peek(credential, bucket).held > 0 then return true end
  end
  pace.crowd, pace.ended_at, unsaved[pace] = nil, now, true
  return false
end

-- When the next call may be made. A clock that was set back must not make the gap longer.
local function resumes_at(pace, gap_ms, now)
  if pace.ended_at > now then pace.ended_at, unsaved[pace] = now, true end
  return math.max(pace.rests_until, pace.ended_at + gap_ms)
end

-- Where few credentials are left that need not rest, the others are next: from a fifth on calls go one by one, and with
-- each halving of the share half as fast. They never stop, or nobody would find out that it is over.
local function gap_now(pace, healthy, all)
  local doubled = 0
  while healthy * 5 * 2 ^ doubled < all and doubled < MOST_DOUBLED do doubled = doubled + 1 end
  return doubled == 0 and pace.gap_ms or math.max(pace.gap_ms, TRIAL_GAP_MS) * 2 ^ doubled
end

local function close_paces()
  for field, pace in pairs(paces) do
    if pace and unsaved[pace] then redis.call('HSET', pools, field, cmsgpack.pack(pace)) end
  end
end
