-- Turn timers that are due into messages of the stream, the earliest first, at most `most` of them.
--
---@key due       zset    timer id scored by due ms
---@key payloads  hash    timer id -> payload
---@key stream    stream  timer, due_ms, payload
---@arg most      int     at most 1,000: what Lua can unpack safely
---@arg now_ms    time
---@include earliest
-- Reply: {lateness in ms of each promoted, ms until the next is due | -1 where there is none, timers left}
-- A timer leaves the set in the same step in which its message enters the stream, so however many processes call this,
-- each timer becomes one message.

local found = redis.call('ZRANGEBYSCORE', due, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, most)
local ids, lateness = {}, {}
for n = 1, #found, 2 do
  ids[#ids + 1] = found[n]
  lateness[#lateness + 1] = now_ms - tonumber(found[n + 1])
end
if #ids > 0 then
  local carried = redis.call('HMGET', payloads, unpack(ids))
  for n, timer_id in ipairs(ids) do
    -- A timer without its payload, which was lost, must not block later timers.
    redis.call('XADD', stream, '*', 'timer', timer_id, 'due_ms', found[2 * n], 'payload', carried[n] or '')
  end
  redis.call('ZREM', due, unpack(ids))
  redis.call('HDEL', payloads, unpack(ids))
end
local next_ms = earliest(due)
local wait_ms = next_ms and math.max(next_ms - now_ms, 0) or -1
return {lateness, wait_ms, redis.call('ZCARD', due)}
