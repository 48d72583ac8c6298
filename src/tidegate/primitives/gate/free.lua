-- Free permits whose message is gone from the stream (deleted by hand, or the stream was lost); their calls are spent.
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
---@arg lost    packed
---@arg now_ms  time
---@include open
---@include book
-- Reply: permits freed
-- One that was settled meanwhile is left alone.

local freed = 0
for n, told in ipairs(redis.call('HMGET', permits, unpack(lost))) do
  if told then
    local credential, bucket, cost, job = string.match(told, '^([^|]*)|([^|]*)|([^|]*)|(.*)$')
    if account(credential) then
      want_open_all(credential, bucket)
      lose(credential, bucket, tonumber(cost), now_ms)
      give_back(credential, bucket, tonumber(cost), now_ms)
    end
    redis.call('HDEL', permits, lost[n])
    redis.call('HDEL', inside, job)
    freed = freed + 1
  end
end
finish(now_ms)
return freed
