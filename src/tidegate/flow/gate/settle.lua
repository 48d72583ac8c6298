-- After a batch of calls: acknowledge, book what the upstream said, take the follow-ups in, open the gates.
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
---@arg group    str
---@arg results  packed
---@arg offers   packed
---@arg now_ms   time
---@include offer
---@include book
-- Reply: {permits settled, permits that were settled before, jobs that were new, jobs let out}
-- A permit is settled once; what the upstream said of its allowance counts in any case.

local messages, names, jobs = {}, {}, {}
for n, result in ipairs(results) do
  messages[n], names[n] = result.message, result.permit
end
local settled, stale, freed = 0, 0, {}
local held = #names > 0 and redis.call('HMGET', permits, unpack(names)) or {}
for n, result in ipairs(results) do
  if held[n] and not freed[result.permit] then
    settled = settled + 1
    freed[result.permit] = true
    jobs[settled] = result.job
    give_back(result.credential, result.bucket, result.cost, result.outcome == 'unknown', now_ms)
    want_open(account(result.credential).pool, result.bucket)
  else
    stale = stale + 1
  end
  book_result(result, now_ms)
end
if #messages > 0 then
  redis.call('XACK', stream, group, unpack(messages))
  redis.call('XDEL', stream, unpack(messages))
  redis.call('HDEL', permits, unpack(names))
end
if settled > 0 then redis.call('HDEL', inside, unpack(jobs)) end
local entered = offer_all(offers, now_ms)
finish(now_ms)
return {settled, stale, entered, let_out}
