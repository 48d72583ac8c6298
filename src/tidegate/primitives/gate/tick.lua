-- Do what is due: delays that ended, gates that may open again.
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
---@arg most    int
---@arg now_ms  time
---@include open
-- Reply: {things done, jobs let out, ms until the next thing is due or -1}

local MOST_DOORS = 50  -- each may look at all credentials of a pool
local now_due = redis.call('ZRANGE', due, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, most)
local jobs, coming, opened_now = {}, {}, 0
for n, what in ipairs(now_due) do
  local kind, rest = string.sub(what, 1, 1), string.sub(what, 3)
  if kind == 'o' and opened_now == MOST_DOORS then
    for m = n, #now_due do now_due[m] = nil end
    break
  elseif kind == 'o' then
    opened_now = opened_now + 1
    local pool, bucket = string.match(rest, '^(.*)|(.*)$')
    want_open(pool, bucket)
  else
    local value = redis.call('HGET', inside, rest)
    local record = value and is_record(value) and cmsgpack.unpack(value)
    if record and record[PLACE] == '' then
      jobs[#jobs + 1], coming[#coming + 1] = rest, record
    end
  end
end
load_lanes(coming)
for n, job in ipairs(jobs) do
  enter(job, coming[n])
  want_open(coming[n][POOL], coming[n][BUCKET])
end
if #now_due > 0 then redis.call('ZREM', due, unpack(now_due)) end
finish(now_ms)
return {#now_due, let_out, next_due_in(now_ms)}
