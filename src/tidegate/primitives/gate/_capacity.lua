-- What a credential may do at this moment.
---@include ledger
local HEALED_IN_MS = 1800000  -- what time alone takes
local SEND_WITHIN_MS, GUARD_MS = 2000, 500  -- how old a permit may be when its request leaves, and how late that arrives
local MINUTE_MS, SLOT_MS, GRACE_MS = 60000 + SEND_WITHIN_MS + GUARD_MS, 5000, 5000
local RATE_STEPS = 40  -- in which the calls of a minute recover, from none to all

-- Calls of the last minute, as the upstream may see it: the first may have been sent as late as its permit allows, the
-- last at once. Slots are counted whole, so the count errs by up to one slot, always to the safe side.
local function calls_in_minute(state, now)
  local oldest, calls, slots = math.floor((now - MINUTE_MS) / SLOT_MS), 0, state.minute
  while slots[1] and slots[1][1] < oldest do table.remove(slots, 1) end
  for _, slot in ipairs(slots) do calls = calls + slot[2] end
  return calls
end

-- A small limit keeps a small floor: never more than a tenth.
local function floor_of(state, limit)
  return math.min(state.floor, math.floor(limit / 10))
end

-- A call lost shortly before our end of a window may have come after the upstream's, so it counts in the new one too.
local function roll_over(book, now)
  if book.resets_at and now >= book.resets_at then
    if book.lost_at < book.resets_at - GRACE_MS then book.lost = 0 end
    book.remaining, book.resets_at, book.fresh = book.limit, nil, true
    book.turned = book.turned + 1
  end
end

-- When there are units again. A window that nobody opens, since nothing fits into what is left of it, ends all the same.
local function opens_at(state, book, now)
  if book.held == 0 and not book.resets_at then book.resets_at = now + state.window_ms end
  return book.resets_at
end

-- How well a credential is received in a bucket: each rest halves it; calls that are answered, and time, heal it.
local function health_of(book, now)
  return book.health and math.min(1, book.health + math.max(0, now - book.healed_at) / HEALED_IN_MS) or 1
end

-- How many calls at once, and in a minute, a credential may make: what refusals taught, and one step more for each
-- `every_ms` since the last one. What has recovered is forgotten.
local function limits_of(state, now)
  local learned = state.learned
  if not learned then return state.concurrency, state.per_minute end
  local steps = math.max(0, math.floor((now - learned.since) / learned.every_ms))
  local concurrency = math.min(state.concurrency, learned.concurrency + steps)
  local per_minute = math.min(state.per_minute, learned.per_minute + steps * math.ceil(state.per_minute / RATE_STEPS))
  if concurrency == state.concurrency and per_minute == state.per_minute then state.learned = nil end
  return concurrency, per_minute
end

-- Calls of a credential, whatever the bucket; where there are none, when and why, as below.
local function calls_of(state, now)
  if state.retired then return 0, nil, 'retired' end
  if state.blocked_until > now then return 0, state.blocked_until, 'blocked' end
  if state.wary and state.in_flight > 0 then return 0, nil, 'probing' end
  local concurrency, per_minute = limits_of(state, now)
  local calls = state.wary and 1 or math.min(concurrency, state.ramp or concurrency) - state.in_flight
  if calls <= 0 then return 0, nil, 'concurrency' end
  local left = per_minute - calls_in_minute(state, now)
  if left <= 0 then return 0, (state.minute[1][1] + 1) * SLOT_MS + MINUTE_MS, 'minute' end
  return math.min(calls, left), nil, nil
end

-- Returns calls, units and, where there are none, when there may be some (nil: when a call in flight is settled),
-- and the reason: 'blocked', 'retired', 'concurrency', 'minute', 'probing', 'exhausted'.
local function capacity(credential, bucket, now)
  local state = account(credential)
  local book = state.unmetered and peek(credential, bucket) or bucket_of(credential, bucket)
  if not state.unmetered then touched[credential] = true end
  local rests_until = not state.retired and book.blocked_until or 0
  if rests_until > now then return 0, 0, math.max(rests_until, state.blocked_until), 'blocked' end
  local calls, at, reason = calls_of(state, now)
  if calls == 0 then return 0, 0, at, reason end
  if book.held > 0 then
    if book.wary then return 0, 0, nil, 'probing' end
    if state.alone and state.alone[bucket] then return 0, 0, nil, 'concurrency' end
  end
  if book.wary or (state.alone and state.alone[bucket]) then calls = 1 end
  if not book.limit then
    if state.unmetered then return calls, math.huge, nil, nil end
    -- Nothing is known: one call finds out, and unknown never means unlimited.
    if book.held > 0 then return 0, 0, nil, 'probing' end
    return 1, math.huge, nil, nil
  end
  touched[credential .. '|' .. bucket] = true
  roll_over(book, now)
  local units = book.remaining - book.held - book.lost - floor_of(state, book.limit)
  if units > 0 then return calls, units, nil, nil end
  return 0, 0, opens_at(state, book, now), 'exhausted'
end

local function count_calls(state, calls, now)
  local slot, last = math.floor(now / SLOT_MS), state.minute[#state.minute]
  if last and last[1] >= slot then
    last[2] = last[2] + calls
  else
    state.minute[#state.minute + 1] = {slot, calls}
  end
end

local function spend(credential, book, calls, units, now)
  local state = account(credential)
  touched[credential] = true
  count_calls(state, calls, now)
  state.in_flight = state.in_flight + calls
  book.held = book.held + units
  -- The window opens with its first call. If that one is never answered, ours must end all the same.
  if book.limit and not book.resets_at then book.resets_at = now + state.window_ms end
end
