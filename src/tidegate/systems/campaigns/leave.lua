-- A process leaves the consumer pool of a campaign: because it has been quiet, because it stops, or because it died.
--
---@keyset keys
---@key served   set     campaigns that this process serves
---@arg campaign str
---@arg owner    str
---@arg group    str
---@arg idle_ms  int     only where no message has come for this long; -1: in any case
---@arg now_ms   time
---@include backlog
---@include wake
-- Reply: {'left'} | {'torn_down'} where it was the last one and nothing is left anywhere | {'pending'} where it holds
--        messages itself | {'unread'} where somebody must read | {'early', ms until it has been quiet long enough}
-- A message that comes right after finds no hands, and calls. The same again changes nothing.

local depth, pending = backlog(keys, group)
-- To take a consumer out of the group that still holds something would be to lose it.
if pending > 0 and #redis.call('XPENDING', keys.stream, group, '-', '+', 1, owner) > 0 then return {'pending'} end
if idle_ms >= 0 then
  if depth > pending then return {'unread'} end
  local quiet_ms = now_ms - tonumber(redis.call('HGET', keys.book, 'last_ms') or 0)
  if quiet_ms < idle_ms then return {'early', idle_ms - quiet_ms} end
end
redis.call('SREM', keys.processes, owner)
redis.call('SREM', served, campaign)
redis.pcall('XGROUP', 'DELCONSUMER', keys.stream, group, owner)
if redis.call('SCARD', keys.processes) > 0 then return {'left'} end
if depth > 0 or pending > 0 then
  wake_process(keys, campaign)
  return {'left'}
end
redis.call('DEL', keys.stream)
redis.call('SREM', keys.busy, campaign)
return {'torn_down'}
