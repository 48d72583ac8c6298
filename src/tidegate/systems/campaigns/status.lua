-- How a campaign stands, seen in one moment.
--
---@key book     hash    what the door knows
---@key stream   stream  messages
---@key dead     stream  dead letters
---@key entries  hash    user -> number|key
---@key hands    set     processes that serve it
---@key calls    list    campaigns that call
---@key called   set     the same, for a quick look
---@key busy     set     campaigns that may have messages or hands
---@arg campaign str
---@arg group    str
---@arg now_ms   time
---@include backlog
-- Reply: {messages, of them delivered, dead letters, whom the door remembers, processes that serve it, 1 if a call is
--         under way, ms since the last message or -1, {issued, last number, epoch, state} of the book or nothing}

local depth, pending = backlog(group)
local known = redis.call('HMGET', book, 'issued', 'next', 'epoch', 'state', 'last_ms')
local idle_ms = known[5] and now_ms - tonumber(known[5]) or -1
local told = known[1] and {tonumber(known[1]), tonumber(known[2]), tonumber(known[3]), known[4]} or {}
return {depth, pending, redis.call('XLEN', dead), redis.call('HLEN', entries), redis.call('SMEMBERS', hands),
  redis.call('SISMEMBER', called, campaign), idle_ms, told}
