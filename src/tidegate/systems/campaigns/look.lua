-- Make good what a loss may have left behind: messages that nobody reads call again, and what is empty is torn down.
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
---@include backlog
-- Reply: {'called'} | {'torn_down'} | {'served', process, ...} | {'waiting'} for what others hold
-- A call that is made twice does no harm: who comes and finds nothing to do goes away.

local depth, pending = backlog(group)
local members = redis.call('SMEMBERS', hands)
if depth > pending then
  redis.call('SADD', called, campaign)
  -- It may be noted as called while the call itself is lost.
  if not redis.call('LPOS', calls, campaign) then redis.call('LPUSH', calls, campaign) end
end
-- Hands that have forgotten it, or hang, are not among the missing; so it calls although it has some.
if #members > 0 then return {'served', unpack(members)} end
if depth > pending then return {'called'} end
if depth > 0 or pending > 0 then return {'waiting'} end
redis.call('DEL', stream)
redis.call('SREM', busy, campaign)
return {'torn_down'}
