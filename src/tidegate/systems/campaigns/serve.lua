-- A process joins the crew of a campaign, as an answer to a call or of its own accord.
--
---@key book     hash    what the door knows
---@key stream   stream  messages
---@key dead     stream  dead letters
---@key entries  hash    user -> number|key
---@key hands    set     processes that serve it
---@key calls    list    campaigns that call
---@key called   set     the same, for a quick look
---@key busy     set     campaigns that may have messages or hands
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

local total = redis.call('HGET', book, 'total')
if not total then return {'unknown'} end
redis.call('LREM', taken, 0, campaign)
redis.call('SREM', called, campaign)
local depth, pending = backlog(group)
if if_needed == 1 and depth <= pending then return {'nothing'} end
redis.call('SADD', hands, owner)
redis.call('SADD', served, campaign)
redis.call('SADD', busy, campaign)
redis.pcall('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
return {'serving', tonumber(total)}
