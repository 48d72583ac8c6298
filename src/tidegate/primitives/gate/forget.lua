-- Take jobs out again that nobody wants any more. One that is out already is left: its worker finds out from SQL.
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
---@arg jobs    packed
---@arg now_ms  time
---@include open
-- Reply: {jobs forgotten, jobs that are out}

local forgotten, out = 0, 0
for _, job in ipairs(jobs) do
  local value = redis.call('HGET', inside, job)
  if value and is_record(value) then
    local record = cmsgpack.unpack(value)
    if record[PLACE] == '' then
      redis.call('ZREM', due, 'j|' .. job)
    else
      redis.call('ZREM', waiting, record[PLACE])
      load_lanes({record})
      leave(record, nil)
      want_open(record[POOL], record[BUCKET])  -- it may have stood before one that can go
    end
    redis.call('HDEL', inside, job)
    forgotten = forgotten + 1
  elseif value then
    out = out + 1
  end
end
finish(now_ms)
return {forgotten, out}
