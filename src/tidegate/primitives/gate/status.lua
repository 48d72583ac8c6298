-- Describe a pool: its credentials with their allowances, and how many jobs wait in which bucket.
--
---@keyset keys
---@arg pool    str
---@arg now_ms  time
---@include open_gate
---@include capacity
---@include pace
---@include queues
-- Reply: a packed {credentials = {...}, waiting = {bucket = jobs}, paces = {...}}

local function count_waiting(queue)
  return redis.call('ZLEXCOUNT', keys.waiting, '[' .. queue .. '|', '(' .. queue .. '}')
end

local function describe_bucket(gate, name, bucket)
  local calls, _, again_at, reason = capacity_of(gate, name, bucket)
  local allowance = peek_allowance(gate, name, bucket)
  return {name = bucket, limit = allowance.limit, remaining = allowance.remaining, held = allowance.held,
    lost = allowance.lost, health = health_of(allowance, now_ms),
    rests_in_ms = math.max(0, (allowance.blocked_until or 0) - now_ms),
    resets_in_ms = allowance.resets_at and math.max(0, allowance.resets_at - now_ms), calls_now = calls, reason = reason,
    opens_in_ms = again_at and math.max(0, again_at - now_ms)}
end

local function describe_credential(gate, name)
  local credential, buckets = read_state(gate, name), {}
  local concurrency, per_minute = limits_of(credential, now_ms)
  for n, bucket in ipairs(buckets_of(gate, name)) do buckets[n] = describe_bucket(gate, name, bucket) end
  return {name = name, in_flight = credential.in_flight, concurrency = credential.concurrency,
    concurrency_now = concurrency, per_minute = credential.per_minute, per_minute_now = per_minute,
    retired = credential.retired or false, blocked_in_ms = math.max(0, credential.blocked_until - now_ms),
    buckets = buckets}
end

local function describe_pace(gate, bucket, pace, credentials)
  local healthy = #credentials
  for _, name in ipairs(credentials) do
    local _, _, _, reason = capacity_of(gate, name, bucket)
    if reason == 'retired' or reason == 'blocked' then healthy = healthy - 1 end
  end
  local gap_ms, is_out = current_gap_ms(pace, healthy, #credentials), has_call_in_flight(gate, pace)
  return {bucket = bucket, gap_ms = pace.gap_ms, gap_now_ms = gap_ms,
    one_at_a_time = gap_ms > 0 or pace.one_at_a_time or false, healthy = healthy, is_out = is_out,
    rests_in_ms = math.max(0, pace.paused_until - now_ms),
    opens_in_ms = not is_out and math.max(0, next_call_at(gate, pace, gap_ms) - now_ms) or nil}
end

local gate = open_gate(keys, now_ms)
local credentials = credentials_of(gate, pool)
local report, owners, buckets = {credentials = {}, waiting = {}, paces = {}}, {'p:' .. pool, 'b:' .. pool}, {}
for n, name in ipairs(credentials) do
  report.credentials[n] = describe_credential(gate, name)
  owners[#owners + 1] = 'c:' .. name
  for _, bucket in ipairs(report.credentials[n].buckets) do buckets[bucket.name] = true end
end
for _, owner in ipairs(owners) do
  for _, bucket in ipairs(waiting_buckets(gate, owner)) do
    buckets[bucket] = true
    report.waiting[bucket] = (report.waiting[bucket] or 0) + count_waiting(owner .. '|' .. bucket)
  end
end
for bucket in pairs(buckets) do
  local pace = pace_of(gate, pool, bucket)
  if pace then table.insert(report.paces, describe_pace(gate, bucket, pace, credentials)) end
end
return cmsgpack.pack(report)
