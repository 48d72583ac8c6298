-- Remove jobs that wait. A job that was dispatched is left: its worker finds out from SQL.
--
---@keyset keys
---@arg names   packed
---@arg now_ms  time
---@include open_gate
---@include dispatch
-- Reply: {jobs removed, jobs that were dispatched before}

local gate = open_gate(keys, now_ms)
local removed, dispatched = 0, 0
for _, job in ipairs(names) do
  local value = redis.call('HGET', keys.jobs, job)
  local record = record_from(value)
  if record then
    if record[POSITION] == '' then
      redis.call('ZREM', keys.due, 'j|' .. job)
    else
      redis.call('ZREM', keys.waiting, record[POSITION])
      read_turns(gate, {record})
      leave_queue(gate, record, nil)
      request_dispatch(gate, record[POOL], record[BUCKET])  -- it may have stood before one that can go
    end
    redis.call('HDEL', keys.jobs, job)
    removed = removed + 1
  elseif value then
    dispatched = dispatched + 1
  end
end
close_gate(gate)
return {removed, dispatched}
