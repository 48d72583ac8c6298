-- Begin the admission of named users, beside the capacity: the first step.
---@keyset keys
---@arg users       packed  list of users
---@arg settle_ms   int     after this time another process may settle the admission
---@arg now_ms      time
---@include signs
---@include entry
---@include log_step
---@include run
---@include send_wakeup
-- Reply: {'taken', epoch, list of {user, admission, place | nothing if the user did not wait}} | {'unknown'}
-- Users that are inside or being admitted are left out.

local room = read_room_with_rate(keys)
if not room or room.paused_until_ms > 0 or not is_installed_here(keys) then return {'unknown'} end
local taken, noted = {}, {}
for _, user in ipairs(users) do
  if not redis.call('HGET', keys.admissions, user) and not redis.call('HGET', keys.entries, user) then
    local place = tonumber(redis.call('ZSCORE', keys.waiting, user))
    local admission, second = next_admission(room, now_ms), 0
    if place then
      second = last_sign(keys, room, number_of(place))
      set_sign(keys, room, number_of(place), 0)
      redis.call('ZREM', keys.waiting, user)
    end
    begin_entry(keys, user, admission, place, second, now_ms + settle_ms)
    redis.call('SADD', keys.guests, user)
    taken[#taken + 1] = {user, admission, place}
    noted[#noted + 1] = {user, place and text(place) or '', text(admission)}
  end
end
redis.call('HSET', keys.book, 'admissions', text(room.admissions))
log_step(keys, room, 'invited', noted)
if #noted > 0 then
  notify_watchers(keys)
  send_wakeup(keys.wake)  -- the worker must know the deadline, since the caller may die
end
return {'taken', room.epoch, taken}
