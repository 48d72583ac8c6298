-- What SQL remembers of a pool, for a gate that may have forgotten it. It only makes the gate more careful.
--
---@key waiting     zset    line|class|turn|job
---@key lanes       hash    turns of pools and runs; M:pool -> 'ms calls', of which newcomers must know
---@key inside      hash    job -> record or permit
---@key permits     hash    permit -> credential|bucket|cost|job
---@key allowances  hash    credential or credential|bucket -> its state
---@key pools       hash    pool -> credentials
---@key due         zset    what happens later
---@key stream      stream  jobs that may run
---@key wake        list    the timekeeper's doorbell
---@arg pool     str
---@arg started  int     calls that were begun in the last minute, by whomever
---@arg running  int     calls that may be under way
---@arg notes    packed
---@arg now_ms   time
---@include book
-- Reply: calls of the last minute that the gate did not know
-- A credential that the gate does not know waits here to be enrolled, like one that was dismissed with calls in flight.

local told, known = {}, 0

local function recall(credential)
  local state = account(credential)
  if not state then
    state = {pool = '', concurrency = 1, per_minute = 1, floor = 0, window_ms = 0, patience_ms = 0, in_flight = 0, bound = 0,
      blocked_until = 0, buckets = {}, minute = {}}
    ledger[credential] = state
  end
  told[credential], touched[credential] = state, true
  return state
end

-- A window that the gate does not know, or of which it believes that more is left. Calls under way may count as well.
local function remember(book, note)
  local is_newer = not book.window or note.window > book.window + SAME_WINDOW_S
  local is_same = not is_newer and note.window >= book.window - SAME_WINDOW_S
  if is_newer then
    book.limit, book.remaining, book.window, book.fresh = note.limit, note.remaining, note.window, nil
    book.resets_at = now_ms + note.resets_in_ms
  elseif is_same and not book.fresh and note.remaining < book.remaining then
    book.remaining = note.remaining
  else
    return
  end
  book.lost, book.lost_at = math.max(book.lost, running - book.held), now_ms
end

-- Several buckets may tell of a lesson; the last one counts. The gate's own knowledge is newer than all of them.
local function relearn(state, learned)
  local since, known = now_ms + learned.begins_in_ms, state.learned
  if known and (known.permit > 0 or known.since >= since) then return end
  state.learned = {concurrency = learned.concurrency, per_minute = learned.per_minute, since = since,
    every_ms = learned.every_ms, permit = 0}
  state.ramp = 1
end

for _, credential in ipairs(credentials_of(pool)) do recall(credential) end
for _, note in ipairs(notes) do
  local state = recall(note.credential)
  if note.blocked_ms > 0 then
    local who = note.rests_bucket and bucket_of(note.credential, note.bucket) or state
    who.blocked_until, who.wary = math.max(who.blocked_until or 0, now_ms + note.blocked_ms), true
  end
  if note.learned then relearn(state, note.learned) end
  if note.window then remember(bucket_of(note.credential, note.bucket), note) end
end
for _, state in pairs(told) do known = known + calls_in_minute(state, now_ms) end
local missing = math.max(0, started - known)
if missing > 0 then
  for _, state in pairs(told) do state.minute[#state.minute + 1] = {math.floor(now_ms / SLOT_MS), missing} end
  redis.call('HSET', lanes, 'M:' .. pool, string.format('%.0f %d', now_ms, missing))
end
close_ledger()
return missing
