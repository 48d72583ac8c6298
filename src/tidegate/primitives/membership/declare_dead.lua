-- Remove a process that is known to be dead, without waiting for the end of its lease.
--
---@key membership  zset  owner scored by the ms at which its lease ends
---@key dead      set   owners whose messages are to be taken over
---@key leader    hash  owner, fence
---@key vacancy   list  at most one token
---@key wake      list  at most one token
---@arg owner     str   never used by another process, so it names one incarnation
---@include send_wakeup
-- Reply: 1 | 0 where it is not registered: it left, its lease ended, or another process reported it before
-- A live process that is declared dead learns it from its next renewal, and joins again.

if redis.call('ZREM', membership, owner) == 0 then return 0 end
redis.call('SADD', dead, owner)
send_wakeup(wake)
if redis.call('HGET', leader, 'owner') == owner then
  redis.call('DEL', leader)
  if redis.call('LLEN', vacancy) == 0 then redis.call('RPUSH', vacancy, '1') end
end
return 1
