-- A call cannot be answered: there is no such campaign any more.
--
---@key book     hash    what the door knows
---@key stream   stream  messages
---@key dead     stream  dead letters
---@key entries  hash    user -> number|key
---@key hands    set     processes that serve it
---@key calls    list    campaigns that call
---@key called   set     the same, for a quick look
---@key busy     set     campaigns that may have messages or hands
---@key taken    list    calls that this process took and has not answered
---@arg campaign str
-- Reply: 1

redis.call('LREM', taken, 0, campaign)
redis.call('SREM', called, campaign)
redis.call('SREM', busy, campaign)
return 1
