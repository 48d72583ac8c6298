-- Move dead letters back to the stream as new messages, and wake a process.
---@keyset keys
---@arg campaign str
---@arg ids      packed  list of dead letter ids
---@arg now_ms   time
---@include wake
---@include replay_dead_letters
-- Reply: how many of them were present
-- Their share of the stock stays used.

local replayed = replay_dead_letters(keys.stream, keys.dead, ids)
if replayed > 0 then
  redis.call('HSET', keys.book, 'last_ms', string.format('%.0f', now_ms))
  redis.call('SADD', keys.busy, campaign)
  if redis.call('SCARD', keys.processes) == 0 then wake_process(keys, campaign) end
end
return replayed
