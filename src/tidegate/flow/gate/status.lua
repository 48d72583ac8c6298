-- How a pool stands: its credentials with their allowances, and how many jobs wait for what.
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
---@arg pool    str
---@arg now_ms  time
---@include capacity
---@include every_line
-- Reply: a packed {credentials = {...}, waiting = {bucket = jobs}}

local function count(line)
  return redis.call('ZLEXCOUNT', waiting, '[' .. line .. '|', '(' .. line .. '}')
end

local report, lines = {credentials = {}, waiting = {}}, {'p:' .. pool}
for n, name in ipairs(credentials_of(pool)) do
  local state = account(name)
  local told = {name = name, in_flight = state.in_flight, concurrency = state.concurrency, retired = state.retired or false,
    blocked_in_ms = math.max(0, state.blocked_until - now_ms), buckets = {}}
  for b, bucket in ipairs(state.buckets) do
    local calls, _, again, reason = capacity(name, bucket, now_ms)
    local book = bucket_of(name, bucket)
    told.buckets[b] = {name = bucket, limit = book.limit, remaining = book.remaining, held = book.held,
      lost = book.lost,
      resets_in_ms = book.resets_at and math.max(0, book.resets_at - now_ms), calls_now = calls, reason = reason,
      opens_in_ms = again and math.max(0, again - now_ms)}
  end
  report.credentials[n] = told
  lines[#lines + 1] = 'c:' .. name
end
for _, line in ipairs(lines) do
  for _, bucket in ipairs(buckets_in_line(line)) do
    report.waiting[bucket] = (report.waiting[bucket] or 0) + count(line .. '|' .. bucket)
  end
end
return cmsgpack.pack(report)
