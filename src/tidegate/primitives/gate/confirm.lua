-- Whether requests may still be sent whose permits were given a while ago.
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
---@arg asked   packed  list of {credential, bucket, message, by}
---@arg now_ms  time
---@include capacity
---@include pace
-- Reply: for each of them {1} where its request may be sent, or {0, ms for which its credential rests there}
-- A credential or a bucket may have to rest since. A permit that is too old to be used is exchanged for a new one, which
-- counts as one more call of the minute. A permit whose message is gone was taken over and is void.

-- For how long this credential is blocked in this bucket; nil where the gate does not know it.
local function rests_for(credential, bucket)
  local state = account(credential)
  if not state or state.retired then return nil end
  local till = math.max(state.blocked_until, peek(credential, bucket).blocked_until or 0)
  local pace = state.pool ~= '' and pace_of(state.pool, bucket)
  if pace then till = math.max(till, pace.rests_until) end
  return math.max(0, till - now_ms)
end

local function exchange(credential, message)
  local state = account(credential)
  local _, per_minute = limits_of(state, now_ms)
  if not redis.call('XRANGE', stream, message, message)[1] then return false end
  if calls_in_minute(state, now_ms) >= per_minute then return false end
  count_calls(state, 1, now_ms)
  touched[credential] = true
  return true
end

local rests, reply = {}, {}
for n, one in ipairs(asked) do
  local credential, bucket, message, by = one[1], one[2], one[3], one[4]
  local name = credential .. '|' .. bucket
  if rests[name] == nil then rests[name] = rests_for(credential, bucket) or -1 end
  if rests[name] == 0 and (now_ms <= by or exchange(credential, message)) then
    reply[n] = {1}
  else
    reply[n] = {0, math.max(0, rests[name])}
  end
end
close_ledger()
return reply
