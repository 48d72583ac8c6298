-- Remove a process from those that serve a campaign: the campaign is idle, the process stops, or it died.
---@keyset keys
---@key served   set     campaigns that this process serves
---@arg campaign str
---@arg owner    str
---@arg group    str
---@arg idle_ms  int     only if no message came for this long; -1: in any case
---@arg now_ms   time
---@include backlog
---@include wake
-- Reply: {'left'} | {'torn_down'} it was the last process and no message is left | {'pending'} it holds messages
--   | {'unread'} unread messages need it | {'early', ms until the campaign has been idle long enough}
-- A later message finds no process and sends a wake-up. Repeating the call changes nothing.

local depth, pending = backlog(keys, group)
-- Removing a consumer that holds messages would lose them.
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
