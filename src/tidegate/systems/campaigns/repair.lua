-- Repair what data loss may have left behind: unread messages send a wake-up, and an empty campaign is removed.
---@keyset keys
---@arg campaign str
---@arg group    str
---@include backlog
-- Reply: {'called'} | {'torn_down'} | {'served', process, ...} | {'waiting'} other processes hold the messages
-- An additional wake-up is harmless: the process finds no unread messages and ignores it.

local depth, pending = backlog(keys, group)
local members = redis.call('SMEMBERS', keys.processes)
if depth > pending then
  redis.call('SADD', keys.woken, campaign)
  -- The campaign may be marked as woken although the wake-up is lost.
  if not redis.call('LPOS', keys.wakeups, campaign) then redis.call('LPUSH', keys.wakeups, campaign) end
end
-- A listed process may have forgotten the campaign or hang, so the wake-up is sent although there are some.
if #members > 0 then return {'served', unpack(members)} end
if depth > pending then return {'called'} end
if depth > 0 or pending > 0 then return {'waiting'} end
redis.call('DEL', keys.stream)
redis.call('SREM', keys.busy, campaign)
return {'torn_down'}
