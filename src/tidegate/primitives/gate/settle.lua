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
-- nothing. A call counts as spent where nobody knows what became of it: the answer did not come, or did not say what is
-- left, or a worker had the message before this one and died. What the upstream said of its allowance counts in any case;
-- a rest that was reported before (see report.lua) is booked already.

-- A server that lost its data numbers permits and messages anew, so a number alone may be somebody else's.
local function is_about(result)
  local entry = redis.call('XRANGE', stream, result.message, result.message)[1]
  if not entry then return false end
  local fields = {}
  for n = 1, #entry[2], 2 do fields[entry[2][n]] = entry[2][n + 1] end
  return fields.job == result.job and string.match(fields.permit, '^[^|]*') == result.permit
end

local messages, names, jobs, ended, seen = {}, {}, {}, {}, {}
for n, result in ipairs(results) do names[n] = result.permit end
local known = #names > 0 and redis.call('HMGET', permits, unpack(names)) or {}
for n, result in ipairs(results) do
  local whose = result.credential .. '|' .. result.bucket .. '|' .. result.cost .. '|' .. result.job
  local has_permit = known[n] == whose and not seen[result.permit]
  local is_ours = (has_permit or is_about(result)) and redis.call('XACK', stream, group, result.message) == 1
  local is_unsaid = result.outcome == 'unknown' or (result.outcome == 'answered' and not result.window)
  local blind = result.outcome ~= 'unused' and 1 or 0
  seen[result.permit] = true
  if is_ours then
    blind = result.deliveries - 1 + (is_unsaid and 1 or 0)
    messages[#messages + 1] = result.message
    if has_permit then jobs[#jobs + 1], ended[#ended + 1] = result.job, result.permit end
    if result.outcome == 'unused' and blind == 0 then unused[result.permit] = true end
  end
  if result.pause_ms and not result.is_reported then book_pause(result, now_ms) end
  if has_permit and account(result.credential) then
    want_open_all(result.credential, result.bucket)
    if blind > 0 then lose(result.credential, result.bucket, result.cost * blind, now_ms) end
    if is_ours then give_back(result.credential, result.bucket, result.cost, now_ms) end
  end
  book_result(result, now_ms)
end
if #messages > 0 then redis.call('XDEL', stream, unpack(messages)) end
if #ended > 0 then
  redis.call('HDEL', inside, unpack(jobs))
  redis.call('HDEL', permits, unpack(ended))
end
local entered = offer_all(offers, now_ms)
finish(now_ms)
return {#messages, #results - #messages, entered, let_out}
