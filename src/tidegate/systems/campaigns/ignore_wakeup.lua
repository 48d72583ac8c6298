-- Drop a wake-up of a campaign that does not exist any more.
---@keyset keys
---@key taken    list    wake-ups that this process took and has not handled
---@arg campaign str
-- Reply: 1

redis.call('LREM', taken, 0, campaign)
redis.call('SREM', keys.woken, campaign)
redis.call('SREM', keys.busy, campaign)
return 1
