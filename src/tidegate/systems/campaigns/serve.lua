-- Add a process to those that serve a campaign, after a wake-up or on request.
---@keyset keys
---@key served   set     campaigns that this process serves
---@key taken    list    wake-ups that this process took and has not handled
---@arg campaign  str
---@arg owner     str
---@arg group     str
---@arg if_needed int    1: only if messages are unread
---@include backlog
-- Reply: {'serving', total_count of the campaign} | {'nothing'} no message is unread
--   | {'unknown'} the campaign is not installed; the wake-up is kept
-- Repeating the call changes nothing, and restores what the server lost.

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
