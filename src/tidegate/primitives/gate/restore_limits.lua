-- Restore what SQL knows about the limits of a pool, for a gate that may have lost its data. It only makes the gate more
-- careful.
--
---@keyset keys
---@arg pool     str
---@arg started  int     calls that were begun in the last minute
---@arg running  int     calls that may be in flight
---@arg notes    packed
---@arg now_ms   time
---@include open_gate
---@include record_result
-- Reply: calls of the last minute that the gate did not know
-- A credential that the gate does not know waits here to be registered, like one that was dismissed with calls in flight.

local restored = {}

local function restore_credential(gate, name)
  local state = read_state(gate, name)
  if not state then
    state = {pool = '', concurrency = 1, per_minute = 1, floor = 0, floor_share = 0, window_ms = 0, patience_ms = 0, in_flight = 0, bound = 0,
      blocked_until = 0, buckets = {}, minute = {}}
    gate.states[name] = state
  end
  restored[name], gate.changed[name] = state, true
  return state
end

-- A window that the gate does not know, or of which it believes that more is left. Calls in flight may count as well.
local function restore_window(allowance, note)
  local is_newer = not allowance.window or note.window > allowance.window + SAME_WINDOW_S
  local is_same = not is_newer and note.window >= allowance.window - SAME_WINDOW_S
  if is_newer then
    allowance.limit, allowance.remaining = note.limit, note.remaining
    allowance.window, allowance.is_fresh = note.window, nil
    allowance.resets_at = now_ms + note.resets_in_ms
  elseif is_same and not allowance.is_fresh and note.remaining < allowance.remaining then
    allowance.remaining = note.remaining
  else
    return
  end
  allowance.lost, allowance.lost_at = math.max(allowance.lost, running - allowance.held), now_ms
end

-- Several buckets may report learned limits; the latest counts. What the gate learned itself is newer than all of them.
local function restore_learned(state, learned)
  local since, known = now_ms + learned.begins_in_ms, state.learned
  if known and (known.permit > 0 or known.since >= since) then return end
  state.learned = {concurrency = learned.concurrency, per_minute = learned.per_minute, since = since,
    every_ms = learned.every_ms, permit = 0}
  state.ramp = 1
end

local gate = open_gate(keys, now_ms)
for _, name in ipairs(credentials_of(gate, pool)) do restore_credential(gate, name) end
for _, note in ipairs(notes) do
  local state = restore_credential(gate, note.credential)
  if note.blocked_ms > 0 then
    local blocked = note.rests_bucket and allowance_of(gate, note.credential, note.bucket) or state
    blocked.blocked_until = math.max(blocked.blocked_until or 0, now_ms + note.blocked_ms)
    blocked.must_probe = true
  end
  if note.learned then restore_learned(state, note.learned) end
  if note.window then restore_window(allowance_of(gate, note.credential, note.bucket), note) end
end
local known = 0
for _, state in pairs(restored) do known = known + calls_in_minute(state, now_ms) end
local missing = math.max(0, started - known)
if missing > 0 then
  for _, state in pairs(restored) do state.minute[#state.minute + 1] = {math.floor(now_ms / SLOT_MS), missing} end
  redis.call('HSET', keys.pools, 'calls|' .. pool, string.format('%.0f %d', now_ms, missing))
end
save_credentials(gate)
return missing
