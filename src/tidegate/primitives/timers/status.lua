-- How many timers wait, and when the first is due.
--
---@key due  zset  timer id scored by due ms
---@include earliest
-- Reply: {count, due ms of the first | -1}

return {redis.call('ZCARD', due), earliest(due) or -1}
