-- Record sessions: visitors being admitted are inside, and each session has a new end.
---@keyset keys
---@arg sessions    packed  list of {user, admission, ms left}
---@arg now_ms      time
---@include entry
---@include log_step
---@include send_wakeup
-- Reply: how many of them came in by this call
-- An admission that is neither in progress nor inside is ignored, since another process settled it.

local room = read_room(keys)
if not room then return 0 end
local before = tonumber(redis.call('ZRANGE', keys.active, 0, 0, 'WITHSCORES')[2])
local noted, has_guest = {}, false
for _, session in ipairs(sessions) do
  local user, admission, left_ms = unpack(session)
  if end_entry(keys, user, admission) then
    redis.call('ZADD', keys.active, now_ms + left_ms, user)
    redis.call('HSET', keys.admissions, user, text(admission))
    noted[#noted + 1] = {user, '', text(admission)}
    has_guest = has_guest or redis.call('SISMEMBER', keys.guests, user) == 1
  elseif tonumber(redis.call('HGET', keys.admissions, user)) == admission then
    redis.call('ZADD', keys.active, now_ms + left_ms, user)
  end
end
log_step(keys, room, 'admitted', noted)
if #noted > 0 then notify_watchers(keys) end
local first = tonumber(redis.call('ZRANGE', keys.active, 0, 0, 'WITHSCORES')[2])
-- The worker may sleep until a later end of a session, or wait for the end of an invitation.
if has_guest or (first and (not before or first < before)) then send_wakeup(keys.wake) end
return #noted
