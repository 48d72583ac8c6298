-- A call cannot be answered: there is no such campaign any more.
--
---@keyset keys
---@key taken    list    calls that this process took and has not answered
---@arg campaign str
-- Reply: 1

redis.call('LREM', taken, 0, campaign)
redis.call('SREM', keys.woken, campaign)
redis.call('SREM', keys.busy, campaign)
return 1
