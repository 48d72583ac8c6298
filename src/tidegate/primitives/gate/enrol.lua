-- Add a credential to its pool, or change what it may do. What is known of its allowances stays known.
--
---@key waiting     zset    line|class|turn|job
---@key lanes       hash    turns of pools and runs
---@key inside      hash    job -> record or permit
---@key permits     hash    permit -> credential|bucket|cost|job
---@key allowances  hash    credential or credential|bucket -> its state
---@key pools       hash    pool -> credentials
---@key due         zset    what happens later
---@key stream      stream  jobs that may run
---@key wake        list    the timekeeper's doorbell
---@arg credential   str
---@arg pool         str
---@arg concurrency  int
---@arg first        int  calls at once with which a new one begins
---@arg per_minute   int
---@arg alone        str  names of buckets, with a bar after each
---@arg floor        int
---@arg window_ms    int
---@arg patience_ms  int
---@arg metered      int
---@arg now_ms       time
---@include open
---@include every_line
-- Reply: {'enrolled', jobs let out} | {'elsewhere', the pool it belongs to, 1 if it is no good there any more}

-- Calls of the last minute that the server forgot, and somebody reminded it of: anybody's, for all we know.
local function remembered_calls()
  local at_ms, calls = string.match(redis.call('HGET', lanes, 'M:' .. pool) or '', '^(%d+) (%d+)$')
  return at_ms and {{math.floor(tonumber(at_ms) / SLOT_MS), tonumber(calls)}} or {}
end

local state = account(credential)
if state and state.pool ~= '' and state.pool ~= pool then
  return {'elsewhere', state.pool, state.retired and 1 or 0}
end
local is_back = state and state.retired
if not state then
  state = {in_flight = 0, bound = 0, blocked_until = 0, buckets = {}, minute = remembered_calls()}
  if metered == 1 and first < concurrency then state.ramp = first end
end
state.pool, state.retired = pool, nil
state.concurrency, state.per_minute, state.floor = concurrency, per_minute, floor
state.window_ms, state.patience_ms = window_ms, patience_ms
state.alone = {}
for bucket in string.gmatch(alone, '[^|]+') do state.alone[bucket] = true end
ledger[credential], touched[credential] = state, true
if metered == 1 and state.unmetered then  -- from now on it looks at all its buckets by itself
  state.buckets = all_buckets(credential)
  ledger[credential .. '|'], touched[credential .. '|'] = false, true
end
state.unmetered = metered == 0 or nil

local names, present = credentials_of(pool), false
for _, member in ipairs(names) do present = present or member == credential end
if not present then
  names[#names + 1] = credential
  set_credentials(pool, names)
end
for _, bucket in ipairs(buckets_in_line('p:' .. pool)) do want_open(pool, bucket) end
for _, bucket in ipairs(buckets_in_line('b:' .. pool)) do want_open(pool, bucket) end
for _, bucket in ipairs(buckets_in_line('c:' .. credential)) do want_open(pool, bucket) end
if not present or is_back then  -- jobs that wait for others may go to a newcomer
  for _, member in ipairs(names) do
    if account(member).bound > 0 then
      for _, bucket in ipairs(buckets_in_line('c:' .. member)) do want_open(pool, bucket) end
    end
  end
end
finish(now_ms)
return {'enrolled', let_out}
