-- Settle a batch of calls: acknowledge their messages, record what the upstream said, enqueue follow-ups, dispatch.
--
---@keyset keys
---@arg group       str
---@arg results     packed
---@arg follow_ups  packed
---@arg now_ms      time
---@include open_gate
---@include enqueue
---@include record_result
-- Reply: {permits settled, results that came too late, jobs that were new, jobs dispatched}
-- The consumer of the message owns the permit. A result for a message that has passed to another worker, or was settled
-- before, ends nothing. A call counts as spent where its outcome is unknown: there was no answer, or it did not say what
-- is left, or a worker had the message before this one and died. What the upstream said of its allowance counts in any
-- case; a block that was reported before (see report_refusal.lua) is recorded already.

-- Whether the message is the one of this result. A server that lost its data numbers permits and messages again, so equal
-- numbers alone prove nothing.
local function is_message_of(result)
  local entry = redis.call('XRANGE', keys.stream, result.message, result.message)[1]
  if not entry then return false end
  local fields = {}
  for n = 1, #entry[2], 2 do fields[entry[2][n]] = entry[2][n + 1] end
  return fields.job == result.job and string.match(fields.permit, '^[^|]*') == result.permit
end

-- How many calls of a result have an unknown outcome. Each delivery before this one may have made a call.
local function unknown_calls(result, is_ours)
  if not is_ours then return result.outcome ~= 'unused' and 1 or 0 end
  local is_unknown = result.outcome == 'unknown' or (result.outcome == 'answered' and not result.window)
  return result.deliveries - 1 + (is_unknown and 1 or 0)
end

local gate = open_gate(keys, now_ms)
local names = {}
for n, result in ipairs(results) do names[n] = result.permit end
local permits = #names > 0 and redis.call('HMGET', keys.permits, unpack(names)) or {}

local messages, ended_jobs, ended_permits, seen = {}, {}, {}, {}
for n, result in ipairs(results) do
  local terms = result.credential .. '|' .. result.bucket .. '|' .. digits_of(gate, result.cost) .. '|' .. result.job
  local has_permit = permits[n] == terms and not seen[result.permit]
  seen[result.permit] = true
  local is_ours = (has_permit or is_message_of(result)) and redis.call('XACK', keys.stream, group, result.message) == 1
  local unknown = unknown_calls(result, is_ours)
  if is_ours then
    messages[#messages + 1] = result.message
    if has_permit then
      ended_jobs[#ended_jobs + 1], ended_permits[#ended_permits + 1] = result.job, result.permit
    end
    if result.outcome == 'unused' and unknown == 0 then gate.unused[result.permit] = true end
  end
  if result.pause_ms and not result.is_reported then record_pause(gate, result) end
  if has_permit and read_state(gate, result.credential) then
    request_dispatch_after_call(gate, result.credential, result.bucket)
    if unknown > 0 then count_as_spent(gate, result.credential, result.bucket, result.cost * unknown) end
    if is_ours then release_permit(gate, result.credential, result.bucket, result.cost) end
  end
  record_result(gate, result)
end

if #messages > 0 then redis.call('XDEL', keys.stream, unpack(messages)) end
if #ended_permits > 0 then
  redis.call('HDEL', keys.jobs, unpack(ended_jobs))
  redis.call('HDEL', keys.permits, unpack(ended_permits))
end
local added = enqueue(gate, follow_ups)
return {#messages, #results - #messages, added, close_gate(gate)}
