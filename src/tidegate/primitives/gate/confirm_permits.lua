-- Check whether requests with older permits may still be sent.
--
---@keyset keys
---@arg asked   packed  list of {credential, bucket, message, by}
---@arg now_ms  time
---@include open_gate
---@include capacity
---@include pace
-- Reply: for each of them {1} where its request may be sent, or {0, ms for which its credential is blocked there}
-- A credential or a bucket may have been blocked since. A permit that is too old is exchanged for a new one, which counts
-- as one more call of the minute. A permit without its message was taken over and is void.

-- For how long this credential is blocked in this bucket; nil where the gate does not know it.
local function blocked_ms(gate, name, bucket)
  local credential = read_state(gate, name)
  if not credential or credential.retired then return nil end
  local till = math.max(credential.blocked_until, peek_allowance(gate, name, bucket).blocked_until or 0)
  local pace = credential.pool ~= '' and pace_of(gate, credential.pool, bucket)
  if pace then till = math.max(till, pace.paused_until) end
  return math.max(0, till - now_ms)
end

local function exchange_permit(gate, name, message)
  local credential = read_state(gate, name)
  local _, per_minute = limits_of(credential, now_ms)
  if not redis.call('XRANGE', keys.stream, message, message)[1] then return false end
  if calls_in_minute(credential, now_ms) >= per_minute then return false end
  count_calls(credential, 1, now_ms)
  gate.changed[name] = true
  return true
end

local gate = open_gate(keys, now_ms)
local blocked, reply = {}, {}
for n, one in ipairs(asked) do
  local credential, bucket, message, by = one[1], one[2], one[3], one[4]
  local name = credential .. '|' .. bucket
  if blocked[name] == nil then blocked[name] = blocked_ms(gate, credential, bucket) or -1 end
  if blocked[name] == 0 and (now_ms <= by or exchange_permit(gate, credential, message)) then
    reply[n] = {1}
  else
    reply[n] = {0, math.max(0, blocked[name])}
  end
end
save_credentials(gate)
return reply
