-- Record what the answer to a call says about its credential.
---@include capacity
---@include pace
local SAME_WINDOW_S = 1      -- an upstream may report the end of one window a second apart
local RETRY_MS = 1000        -- after which a window that should have ended is tried again
local FOLLOWS_WITHIN_MS = 600000  -- a block that begins this soon after another follows it: that one was too short
local LONGEST_GUESS_MS = 3600000
local HEALTH_PER_CALL = 0.05
local STEP_MS = 60000        -- after which a credential that was refused may do a little more
local LONGEST_STEP_MS = 3600000
local LEAST_SHARE = 8        -- of its calls in a minute it keeps this part at the first refusal, however few it made

-- Count a call with unknown outcome as spent; if a window has ended since, in the new one.
local function count_as_spent(gate, name, bucket, cost)
  local allowance = allowance_of(gate, name, bucket)
  if read_state(gate, name).unmetered and not allowance.limit then return end
  end_window(allowance, gate.now)
  allowance.lost, allowance.lost_at = allowance.lost + cost, gate.now
end

-- The call of a permit is no longer in flight.
local function release_permit(gate, name, bucket, cost)
  local credential, allowance = read_state(gate, name), allowance_of(gate, name, bucket)
  end_window(allowance, gate.now)
  gate.changed[name] = true
  credential.in_flight = math.max(0, credential.in_flight - 1)
  allowance.held = math.max(0, allowance.held - cost)
  if credential.in_flight == 0 then credential.left_pools = nil end
  if credential.pool == '' and credential.in_flight == 0 then delete_credential(gate, name) end
end

-- Within a window the least value counts; a newer window brings its own. After a window ended by our clock, what calls
-- made before it say is late; what a call made after it says is right, even if that is "not yet": then it is not over.
local function record_allowance(allowance, result, is_late, now)
  local is_newer = not allowance.window or result.window > allowance.window + SAME_WINDOW_S
  local is_same = not is_newer and result.window >= allowance.window - SAME_WINDOW_S
  if is_newer then
    if allowance.lost_at < now - GRACE_MS then allowance.lost = 0 end
    allowance.remaining, allowance.window, allowance.is_fresh = result.remaining, result.window, nil
    allowance.limit, allowance.resets_at = result.limit, now + result.resets_in_ms
  elseif is_same and not is_late then
    allowance.remaining, allowance.limit = math.min(allowance.remaining, result.remaining), result.limit
    if allowance.is_fresh then
      allowance.is_fresh, allowance.resets_at = nil, now + math.max(result.resets_in_ms, RETRY_MS)
    end
  end
end

-- Block a credential, or its allowance in a bucket. Calls that are refused during a block were made before it: that is
-- the same block. Where the upstream did not say how long, each that follows another is twice as long. Returns whether
-- the block is a new one.
local function block(state, result, now)
  local before = state.blocked_until or 0
  if now >= before then
    local follows = before > 0 and now - before < FOLLOWS_WITHIN_MS
    state.blocks = follows and (state.blocks or 1) + 1 or 1
  end
  local span = result.blocked_ms
  if result.is_guess then
    span = math.max(span, math.min(span * 2 ^ ((state.blocks or 1) - 1), LONGEST_GUESS_MS))
  end
  state.blocked_until, state.must_probe = math.max(before, now + span), true
  return now >= before
end

local function set_health(allowance, health, now)
  if health < 1 then
    allowance.health, allowance.health_at = health, now
  else
    allowance.health, allowance.health_at = nil, nil
  end
end

-- A refusal shows that half of the calls in flight, and half of the calls of the last minute, were possible. The limits
-- recover by a step at a time, and each refusal before they have recovered makes the steps twice as long. Calls that had
-- their permit at that moment may be refused as well; that is the same lesson.
local function learn_limits(gate, credential, permit)
  local concurrency, per_minute = limits_of(credential, gate.now)
  local before = credential.learned
  if before and permit <= before.permit then return end
  local calls = math.min(per_minute, calls_in_minute(credential, gate.now))
  local least = math.min(per_minute / 2, credential.per_minute / LEAST_SHARE)
  credential.learned = {
    concurrency = math.max(1, math.floor(math.min(concurrency, credential.in_flight) / 2)),
    per_minute = math.max(1, math.floor(math.max(calls / 2, least))),
    since = credential.blocked_until,
    every_ms = before and math.min(2 * before.every_ms, LONGEST_STEP_MS) or STEP_MS,
    permit = tonumber(redis.call('HGET', gate.keys.permits, '#') or 0)}
  credential.ramp = 1
end

-- The upstream refused the call and asked for a block.
local function record_block(gate, credential, result)
  local allowance = allowance_of(gate, result.credential, result.said_of)
  if block(result.rests_bucket and allowance or credential, result, gate.now) then
    set_health(allowance, health_of(allowance, gate.now) / 2, gate.now)
  end
  if not result.rests_bucket then learn_limits(gate, credential, tonumber(result.permit)) end
end

-- The upstream answered. An answer during a block is to a call from before it, and proves nothing.
local function record_success(gate, credential, result)
  local field = result.credential .. '|' .. result.said_of
  local allowance = read_state(gate, field)
  if gate.now < credential.blocked_until then return end
  credential.must_probe = nil
  if credential.ramp then
    credential.ramp = credential.ramp < credential.concurrency and credential.ramp + 1 or nil
  end
  if not allowance or gate.now < (allowance.blocked_until or 0) then return end
  if allowance.must_probe or allowance.health then
    allowance.must_probe, gate.changed[field] = nil, true
    set_health(allowance, health_of(allowance, gate.now) + HEALTH_PER_CALL, gate.now)
  end
end

-- The upstream asked for a pause of the whole bucket. To be called before the permit is released, since a credential
-- that was dismissed is deleted then.
local function record_pause(gate, result)
  local credential = read_state(gate, result.credential)
  if not credential then return end
  local pools = credential.pool ~= '' and {[credential.pool] = true} or credential.left_pools or {}
  for pool in pairs(pools) do pause_bucket(gate, pool, result.said_of, gate.now + result.pause_ms) end
end

local function record_result(gate, result)
  local credential = read_state(gate, result.credential)
  if not credential then return end
  gate.changed[result.credential] = true
  if result.window then
    local allowance = allowance_of(gate, result.credential, result.said_of)
    local is_late = allowance.is_fresh and result.turned ~= allowance.windows_ended
    record_allowance(allowance, result, is_late, gate.now)
  end
  if result.blocked_ms then
    if not result.is_reported then record_block(gate, credential, result) end
  elseif result.outcome == 'answered' then
    record_success(gate, credential, result)
  end
  if result.retired then credential.retired = true end
end
