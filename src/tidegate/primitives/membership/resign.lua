-- Give the lead up, and tell one of those that wait for it.
--
---@key leader  hash  owner, fence
---@key wake    list  the vacancy's token
---@arg owner   str
---@include send_wakeup
-- Reply: 1 | 0 if the owner is not the leader

if redis.call('HGET', leader, 'owner') ~= owner then return 0 end
redis.call('DEL', leader)
send_wakeup(wake)
return 1
