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
-- Reply: {permits settled, results that came too late, jobs that were new, jobs let out}
-- Who holds the message holds the permit. A result for a message that has passed to another, or was settled before, ends
-- nothing; a call that was made all the same counts as spent. What the upstream said of its allowance counts in any case.

local messages, names, jobs = {}, {}, {}
for n, result in ipairs(results) do names[n] = result.permit end
local settled, freed = 0, {}
local known = #names > 0 and redis.call('HMGET', permits, unpack(names)) or {}
for n, result in ipairs(results) do
  if redis.call('XACK', stream, group, result.message) == 1 then
    settled = settled + 1
    messages[settled], freed[settled], jobs[settled] = result.message, result.permit, result.job
    give_back(result.credential, result.bucket, result.cost, now_ms)
    if result.outcome == 'unknown' then lose(result.credential, result.bucket, result.cost, now_ms) end
    want_open(account(result.credential).pool, result.bucket)
  elseif known[n] and result.outcome ~= 'unused' then
    lose(result.credential, result.bucket, result.cost, now_ms)
  end
  book_result(result, now_ms)
end
if settled > 0 then
  redis.call('XDEL', stream, unpack(messages))
  redis.call('HDEL', permits, unpack(freed))
  redis.call('HDEL', inside, unpack(jobs))
end
local entered = offer_all(offers, now_ms)
finish(now_ms)
return {settled, #results - settled, entered, let_out}
