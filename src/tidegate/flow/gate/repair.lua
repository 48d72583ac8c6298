-- Find permits whose message is gone from the stream (deleted by hand, or the stream was lost) and free them as spent.
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
---@arg now_ms  time
---@include open
---@include book
-- Reply: permits freed

local alive = {}
for _, entry in ipairs(redis.call('XRANGE', stream, '-', '+')) do
  local fields = entry[2]
  for n = 1, #fields, 2 do
    if fields[n] == 'permit' then alive[fields[n + 1]] = true end
  end
end
local freed, all = 0, redis.call('HGETALL', permits)
for n = 1, #all, 2 do
  if all[n] ~= '#' and not alive[all[n]] then
    local credential, bucket, cost, job = string.match(all[n + 1], '^([^|]*)|([^|]*)|([^|]*)|(.*)$')
    give_back(credential, bucket, tonumber(cost), now_ms)
    lose(credential, bucket, tonumber(cost), now_ms)
    redis.call('HDEL', permits, all[n])
    redis.call('HDEL', inside, job)
    want_open(account(credential).pool, bucket)
    freed = freed + 1
  end
end
finish(now_ms)
return freed
