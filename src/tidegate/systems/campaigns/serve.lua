-- A process joins the consumer pool of a campaign, as an answer to a call or of its own accord.
--
---@keyset keys
---@key served   set     campaigns that this process serves
---@key taken    list    calls that this process took and has not answered
---@arg campaign  str
---@arg owner     str
---@arg group     str
---@arg if_needed int    1: only where something is unread
---@include backlog
-- Reply: {'serving', total_count of the campaign} | {'nothing'} where nothing is unread | {'unknown'} where it is not
--        installed; then the call is still to be answered
-- The same again changes nothing, and makes good what the server has lost.

local total = redis.call('HGET', keys.book, 'total')
if not total then return {'unknown'} end
redis.call('LREM', taken, 0, campaign)
redis.call('SREM', keys.woken, campaign)
local depth, pending = backlog(keys, group)
if if_needed == 1 and depth <= pending then return {'nothing'} end
redis.call('SADD', keys.processes, owner)
redis.call('SADD', served, campaign)
redis.call('SADD', keys.busy, campaign)
redis.pcall('XGROUP', 'CREATE', keys.stream, group, '0', 'MKSTREAM')
return {'serving', tonumber(total)}
