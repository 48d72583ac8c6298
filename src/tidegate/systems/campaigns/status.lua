-- Return the state of a campaign at one moment.
---@keyset keys
---@arg campaign str
---@arg group    str
---@arg now_ms   time
---@include backlog
-- Reply: {messages, of them delivered, dead letters, remembered users, processes that serve it,
--   1 if a wake-up is pending, ms since the last message or -1, {issued, last number, epoch, state} or nothing}

local depth, pending = backlog(keys, group)
local known = redis.call('HMGET', keys.book, 'issued', 'next', 'epoch', 'state', 'last_ms')
local idle_ms = known[5] and now_ms - tonumber(known[5]) or -1
local told = known[1] and {tonumber(known[1]), tonumber(known[2]), tonumber(known[3]), known[4]} or {}
return {depth, pending, redis.call('XLEN', keys.dead), redis.call('HLEN', keys.entries), redis.call('SMEMBERS', keys.processes),
  redis.call('SISMEMBER', keys.woken, campaign), idle_ms, told}
