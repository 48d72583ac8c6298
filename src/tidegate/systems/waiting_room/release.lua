-- Free the places of sessions that SQL has ended.
---@keyset keys
---@arg sessions    packed  list of {user, admission}
---@arg what        str     'left' or 'expired'
---@include entry
---@include log_step
---@include send_wakeup
-- Reply: how many of them were inside or being admitted
-- A newer admission of the same user is not touched.

local room = read_room(keys)
if not room then return 0 end
local noted = {}
for _, session in ipairs(sessions) do
  local user, admission = unpack(session)
  local was_inside = tonumber(redis.call('HGET', keys.admissions, user)) == admission
  if was_inside then
    redis.call('HDEL', keys.admissions, user)
    redis.call('ZREM', keys.active, user)
  end
  if was_inside or end_entry(keys, user, admission) then
    redis.call('SREM', keys.guests, user)
    noted[#noted + 1] = {user, '', text(admission)}
  end
end
log_step(keys, room, what, noted)
if #noted > 0 then
  notify_watchers(keys)
  send_wakeup(keys.wake)
end
return #noted
