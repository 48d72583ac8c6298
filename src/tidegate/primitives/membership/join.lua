-- A process begins its life: its lease ends `ttl_ms` from now unless it renews it.
--
---@key membership  zset  owner scored by the ms at which its lease ends
---@key wake      list  at most one token
---@arg owner     str
---@arg ttl_ms    int
---@arg now_ms    time
---@include send_wakeup
-- Reply: the ms at which the lease ends
-- Rings, for the leader may sleep until a lease ends, and have known none but its own.

redis.call('ZADD', membership, now_ms + ttl_ms, owner)
send_wakeup(wake)
return now_ms + ttl_ms
