-- Free permits without a message in the stream (deleted by hand, or the stream was lost). Their calls count as spent.
--
---@keyset keys
---@arg lost    packed
---@arg now_ms  time
---@include open_gate
---@include dispatch
---@include record_result
-- Reply: permits freed
-- Idempotent: a permit that was settled meanwhile is left alone.

local gate = open_gate(keys, now_ms)
local freed = 0
for n, terms in ipairs(redis.call('HMGET', keys.permits, unpack(lost))) do
  if terms then
    local credential, bucket, cost, job = string.match(terms, '^([^|]*)|([^|]*)|([^|]*)|(.*)$')
    if read_state(gate, credential) then
      request_dispatch_after_call(gate, credential, bucket)
      count_as_spent(gate, credential, bucket, tonumber(cost))
      release_permit(gate, credential, bucket, tonumber(cost))
    end
    redis.call('HDEL', keys.permits, lost[n])
    redis.call('HDEL', keys.jobs, job)
    freed = freed + 1
  end
end
close_gate(gate)
return freed
