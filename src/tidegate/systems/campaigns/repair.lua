-- Make good what a loss may have left behind: messages that nobody reads call again, and what is empty is torn down.
--
---@keyset keys
---@arg campaign str
---@arg group    str
---@include backlog
-- Reply: {'called'} | {'torn_down'} | {'served', process, ...} | {'waiting'} for what others hold
-- A call that is made twice does no harm: who comes and finds nothing to do goes away.

local depth, pending = backlog(keys, group)
local members = redis.call('SMEMBERS', keys.processes)
if depth > pending then
  redis.call('SADD', keys.woken, campaign)
  -- It may be noted as called while the call itself is lost.
  if not redis.call('LPOS', keys.wakeups, campaign) then redis.call('LPUSH', keys.wakeups, campaign) end
end
-- Hands that have forgotten it, or hang, are not among the missing; so it calls although it has some.
if #members > 0 then return {'served', unpack(members)} end
if depth > pending then return {'called'} end
if depth > 0 or pending > 0 then return {'waiting'} end
redis.call('DEL', keys.stream)
redis.call('SREM', keys.busy, campaign)
return {'torn_down'}
