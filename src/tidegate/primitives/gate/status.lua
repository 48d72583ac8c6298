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
---@include pace
---@include every_line
-- Reply: a packed {credentials = {...}, waiting = {bucket = jobs}, paces = {...}}

local function count(line)
  return redis.call('ZLEXCOUNT', waiting, '[' .. line .. '|', '(' .. line .. '}')
end

-- How fast a bucket is called at present.
local function pace_report(bucket, pace, credentials)
  local healthy = #credentials
  for _, name in ipairs(credentials) do
    local _, _, _, reason = capacity(name, bucket, now_ms)
    if reason == 'retired' or reason == 'blocked' then healthy = healthy - 1 end
  end
  local gap_ms, out = gap_now(pace, healthy, #credentials), is_out(pace, now_ms)
  return {bucket = bucket, gap_ms = pace.gap_ms, gap_now_ms = gap_ms, one_at_a_time = gap_ms > 0 or pace.alone or false,
    healthy = healthy, is_out = out, rests_in_ms = math.max(0, pace.rests_until - now_ms),
    opens_in_ms = not out and math.max(0, resumes_at(pace, gap_ms, now_ms) - now_ms) or nil}
end

local report, lines, known = {credentials = {}, waiting = {}, paces = {}}, {'p:' .. pool, 'b:' .. pool}, {}
for n, name in ipairs(credentials_of(pool)) do
  local state = account(name)
  local concurrency, per_minute = limits_of(state, now_ms)
  local told = {name = name, in_flight = state.in_flight, concurrency = state.concurrency, retired = state.retired or false,
    concurrency_now = concurrency, per_minute = state.per_minute, per_minute_now = per_minute,
    blocked_in_ms = math.max(0, state.blocked_until - now_ms), buckets = {}}
  for b, bucket in ipairs(all_buckets(name)) do
    known[bucket] = true
    local calls, _, again, reason = capacity(name, bucket, now_ms)
    local book = peek(name, bucket)
    told.buckets[b] = {name = bucket, limit = book.limit, remaining = book.remaining, held = book.held,
      lost = book.lost, health = health_of(book, now_ms), rests_in_ms = math.max(0, (book.blocked_until or 0) - now_ms),
      resets_in_ms = book.resets_at and math.max(0, book.resets_at - now_ms), calls_now = calls, reason = reason,
      opens_in_ms = again and math.max(0, again - now_ms)}
  end
  report.credentials[n] = told
  lines[#lines + 1] = 'c:' .. name
end
for _, line in ipairs(lines) do
  for _, bucket in ipairs(buckets_in_line(line)) do
    known[bucket] = true
    report.waiting[bucket] = (report.waiting[bucket] or 0) + count(line .. '|' .. bucket)
  end
end
for bucket in pairs(known) do
  local pace = pace_of(pool, bucket)
  if pace then table.insert(report.paces, pace_report(bucket, pace, credentials_of(pool))) end
end
return cmsgpack.pack(report)
