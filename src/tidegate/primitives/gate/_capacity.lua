-- What a credential may do at this moment.
---@include credentials
local SEND_WITHIN_MS = 2000     -- how old a permit may be when its request is sent
local ARRIVAL_GUARD_MS = 500    -- how late that request may arrive
local MINUTE_MS = 60000 + SEND_WITHIN_MS + ARRIVAL_GUARD_MS
local SLOT_MS = 5000            -- calls of the last minute are counted per slot
local GRACE_MS = 5000           -- how far our end of a window may be from the upstream's
local HEALTH_RECOVERY_MS = 1800000  -- in which health recovers without any call
local RATE_STEPS = 40           -- in which the calls of a minute recover, from none to all

-- Calls of the last minute, as the upstream may see it: the first may have been sent as late as its permit allows, the
-- last at once. Slots are counted whole, so the count errs by up to one slot, always to the safe side.
local function calls_in_minute(credential, now)
  local oldest, calls, slots = math.floor((now - MINUTE_MS) / SLOT_MS), 0, credential.minute
  while slots[1] and slots[1][1] < oldest do table.remove(slots, 1) end
  for _, slot in ipairs(slots) do calls = calls + slot[2] end
  return calls
end

local function count_calls(credential, calls, now)
  local slot, last = math.floor(now / SLOT_MS), credential.minute[#credential.minute]
  if last and last[1] >= slot then
    last[2] = last[2] + calls
  else
    credential.minute[#credential.minute + 1] = {slot, calls}
  end
end

-- Units that are never spent: `floor`, and of a small limit no more than its share.
local function floor_of(credential, limit)
  return math.min(credential.floor, math.floor(limit * credential.floor_share))
end

-- End a window after its time. A call lost shortly before our end of the window may have been counted after the
-- upstream's, so it counts in the new one too.
local function end_window(allowance, now)
  if allowance.resets_at and now >= allowance.resets_at then
    if allowance.lost_at < allowance.resets_at - GRACE_MS then allowance.lost = 0 end
    allowance.remaining, allowance.resets_at, allowance.is_fresh = allowance.limit, nil, true
    allowance.windows_ended = allowance.windows_ended + 1
  end
end

-- When there are units again. A window in which no call is made, since nothing fits into what is left, ends all the same.
local function units_again_at(credential, allowance, now)
  if allowance.held == 0 and not allowance.resets_at then allowance.resets_at = now + credential.window_ms end
  return allowance.resets_at
end

-- 1 at best. Each block of a credential in a bucket halves it; answered calls and time restore it.
local function health_of(allowance, now)
  if not allowance.health then return 1 end
  return math.min(1, allowance.health + math.max(0, now - allowance.health_at) / HEALTH_RECOVERY_MS)
end

-- How many calls at once, and in a minute, a credential may make: its learned limits, and one step more for each
-- `every_ms` since they were learned. Limits that have recovered are deleted.
local function limits_of(credential, now)
  local learned = credential.learned
  if not learned then return credential.concurrency, credential.per_minute end
  local steps = math.max(0, math.floor((now - learned.since) / learned.every_ms))
  local concurrency = math.min(credential.concurrency, learned.concurrency + steps)
  local per_minute =
    math.min(credential.per_minute, learned.per_minute + steps * math.ceil(credential.per_minute / RATE_STEPS))
  if concurrency == credential.concurrency and per_minute == credential.per_minute then credential.learned = nil end
  return concurrency, per_minute
end

-- How many calls a credential may make in all buckets together. Where it is 0, also when and why, as `capacity_of`.
local function calls_available(credential, now)
  if credential.retired then return 0, nil, 'retired' end
  if credential.blocked_until > now then return 0, credential.blocked_until, 'blocked' end
  if credential.must_probe and credential.in_flight > 0 then return 0, nil, 'probing' end
  local concurrency, per_minute = limits_of(credential, now)
  local calls = 1
  if not credential.must_probe then
    calls = math.min(concurrency, credential.ramp or concurrency) - credential.in_flight
  end
  if calls <= 0 then return 0, nil, 'concurrency' end
  local left = per_minute - calls_in_minute(credential, now)
  if left <= 0 then return 0, (credential.minute[1][1] + 1) * SLOT_MS + MINUTE_MS, 'minute' end
  return math.min(calls, left), nil, nil
end

-- Returns calls and units. Where there are none, also when there may be some (nil: when a call in flight is settled)
-- and the reason: 'blocked', 'retired', 'concurrency', 'minute', 'probing', 'exhausted'.
local function capacity_of(gate, name, bucket)
  local now, credential = gate.now, read_state(gate, name)
  local allowance = credential.unmetered and peek_allowance(gate, name, bucket) or allowance_of(gate, name, bucket)
  local one_at_a_time = credential.one_at_a_time and credential.one_at_a_time[bucket]
  if not credential.unmetered then gate.changed[name] = true end
  local blocked_until = not credential.retired and allowance.blocked_until or 0
  if blocked_until > now then return 0, 0, math.max(blocked_until, credential.blocked_until), 'blocked' end
  local calls, again_at, reason = calls_available(credential, now)
  if calls == 0 then return 0, 0, again_at, reason end
  if allowance.held > 0 then
    if allowance.must_probe then return 0, 0, nil, 'probing' end
    if one_at_a_time then return 0, 0, nil, 'concurrency' end
  end
  if allowance.must_probe or one_at_a_time then calls = 1 end
  if not allowance.limit then
    if credential.unmetered then return calls, math.huge, nil, nil end
    -- Nothing is known: one call finds out, and unknown never means unlimited.
    if allowance.held > 0 then return 0, 0, nil, 'probing' end
    return 1, math.huge, nil, nil
  end
  gate.changed[name .. '|' .. bucket] = true
  end_window(allowance, now)
  local units = allowance.remaining - allowance.held - allowance.lost - floor_of(credential, allowance.limit)
  if units > 0 then return calls, units, nil, nil end
  return 0, 0, units_again_at(credential, allowance, now), 'exhausted'
end

-- Count permits that a credential gets. A window begins with its first call; if that is never answered, the assumed window ends.
local function spend(gate, name, allowance, calls, units)
  local credential = read_state(gate, name)
  gate.changed[name] = true
  count_calls(credential, calls, gate.now)
  credential.in_flight = credential.in_flight + calls
  allowance.held = allowance.held + units
  if allowance.limit and not allowance.resets_at then allowance.resets_at = gate.now + credential.window_ms end
end
