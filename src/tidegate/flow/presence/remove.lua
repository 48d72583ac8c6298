-- Strike a process off, if its lease has ended.
--
---@key presence  zset  owner scored by the ms at which its lease ends
---@arg owner     str
---@arg now_ms    time
-- Reply: 1 | 0 where it lives, or is not there

local until_ms = redis.call('ZSCORE', presence, owner)
if not until_ms or tonumber(until_ms) > now_ms then return 0 end
return redis.call('ZREM', presence, owner)
