-- What a call's answer says about its credential.
---@include capacity
---@include pace
local SAME_WINDOW_S = 1  -- an upstream may tell one window's end a second apart
local RETRY_MS = 1000    -- when a window that should have ended is looked at again
local SOON_MS = 600000   -- a rest that begins this soon after another follows it: that one was too short
local LONGEST_GUESS_MS = 3600000
local HEALED_BY_CALL = 0.05
local STEP_MS, LONGEST_STEP_MS = 60000, 3600000  -- after which a credential that was refused may do a little more
local LEAST_SHARE = 8  -- of its calls in a minute it keeps that part at the first refusal, however few it made

-- A call of unknown fate: the upstream counted it, for all we know; if a window has ended since, in the new one.
local function lose(credential, bucket, cost, now)
  local book = bucket_of(credential, bucket)
  if account(credential).unmetered and not book.limit then return end  -- nobody counts
  roll_over(book, now)
  book.lost, book.lost_at = book.lost + cost, now
end

-- The permit is no longer in flight.
local function give_back(credential, bucket, cost, now)
  local state, book = account(credential), bucket_of(credential, bucket)
  roll_over(book, now)
  touched[credential] = true
  state.in_flight = math.max(0, state.in_flight - 1)
  book.held = math.max(0, book.held - cost)
  if state.in_flight == 0 then state.left = nil end
  if state.pool == '' and state.in_flight == 0 then strike_off(credential) end
end

-- Within a window the least value counts; a newer window brings its own. After a window ended by our clock, what calls
-- made before it say is late; what a call made after it says is right, even if that is "not yet": then it is not over.
local function book_allowance(book, result, is_late, now)
  local is_newer = not book.window or result.window > book.window + SAME_WINDOW_S
  local is_same = not is_newer and result.window >= book.window - SAME_WINDOW_S
  if is_newer then
    if book.lost_at < now - GRACE_MS then book.lost = 0 end
    book.remaining, book.window, book.fresh = result.remaining, result.window, nil
    book.limit, book.resets_at = result.limit, now + result.resets_in_ms
  elseif is_same and not is_late then
    book.remaining, book.limit = math.min(book.remaining, result.remaining), result.limit
    if book.fresh then
      book.fresh, book.resets_at = nil, now + math.max(result.resets_in_ms, RETRY_MS)
    end
  end
end

-- The upstream asked for a rest. Whoever is refused during it called before it: that is the same rest. Where nobody said
-- how long, each that follows another is twice as long. `who` is a credential, or a bucket of its. Returns whether the
-- rest is a new one.
local function rest(who, result, now)
  local before = who.blocked_until or 0
  if now >= before then
    local follows = before > 0 and now - before < SOON_MS
    who.rests = follows and (who.rests or 1) + 1 or 1
  end
  local span = result.blocked_ms
  if result.is_guess then span = math.max(span, math.min(span * 2 ^ ((who.rests or 1) - 1), LONGEST_GUESS_MS)) end
  who.blocked_until, who.wary = math.max(before, now + span), true
  return now >= before
end

local function set_health(book, health, now)
  if health < 1 then
    book.health, book.healed_at = health, now
  else
    book.health, book.healed_at = nil, nil
  end
end

-- A refusal teaches: half of what was under way, and half of what was called in the last minute, was possible. It
-- recovers by a step at a time, and each refusal before it has recovered makes the steps twice as long. Requests that had
-- their permit when the lesson was learned may be refused as well; that is the same lesson.
local function learn(state, permit, now)
  local concurrency, per_minute = limits_of(state, now)
  local before = state.learned
  if before and permit <= before.permit then return end
  local calls = math.min(per_minute, calls_in_minute(state, now))
  state.learned = {
    concurrency = math.max(1, math.floor(math.min(concurrency, state.in_flight) / 2)),
    per_minute = math.max(1, math.floor(math.max(calls / 2, math.min(per_minute / 2, state.per_minute / LEAST_SHARE)))),
    since = state.blocked_until,
    every_ms = before and math.min(2 * before.every_ms, LONGEST_STEP_MS) or STEP_MS,
    permit = tonumber(redis.call('HGET', permits, '#') or 0)}
  state.ramp = 1
end

local function book_rest(state, result, now)
  local book = bucket_of(result.credential, result.said_of)
  if rest(result.rests_bucket and book or state, result, now) then set_health(book, health_of(book, now) / 2, now) end
  if not result.rests_bucket then learn(state, tonumber(result.permit), now) end
end

-- An answer without a rest. One that comes while there is a rest is to a call from before it, and proves nothing.
local function book_welcome(state, result, now)
  local field = result.credential .. '|' .. result.said_of
  local book = account(field)
  if now < state.blocked_until then return end
  state.wary = nil
  if state.ramp then
    state.ramp = state.ramp < state.concurrency and state.ramp + 1 or nil
  end
  if not book or now < (book.blocked_until or 0) then return end
  if book.wary or book.health then
    book.wary, touched[field] = nil, true
    set_health(book, health_of(book, now) + HEALED_BY_CALL, now)
  end
end

-- Before the permit is given back, as one that was dismissed is forgotten then.
local function book_pause(result, now)
  local state = account(result.credential)
  if not state then return end
  for pool in pairs(state.pool ~= '' and {[state.pool] = true} or state.left or {}) do
    pause(pool, result.said_of, now + result.pause_ms, now)
  end
end

local function book_result(result, now)
  local state = account(result.credential)
  if not state then return end
  touched[result.credential] = true
  if result.window then
    local book = bucket_of(result.credential, result.said_of)
    book_allowance(book, result, book.fresh and result.turned ~= book.turned, now)
  end
  if result.blocked_ms then
    if not result.is_reported then book_rest(state, result, now) end
  elseif result.outcome == 'answered' then
    book_welcome(state, result, now)
  end
  if result.retired then state.retired = true end
end
