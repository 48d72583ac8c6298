-- Return visitors of reverted admissions to their previous places.
---@keyset keys
---@arg entered     packed  list of {user, admission}
---@arg wake_worker       int     1 wakes the worker; 0 if it retries by itself
---@arg now_ms      time
---@include signs
---@include entry
---@include log_step
---@include send_wakeup
-- Reply: how many of them were being admitted
-- The time without a sign of life continues to count.

local room = read_room(keys)
if not room then return 0 end
local noted = {}
for _, each in ipairs(entered) do
  local user, admission = unpack(each)
  local entry = end_entry(keys, user, admission)
  if entry then
    local place, second = unpack(entry, 1, 2)
    if not redis.call('HGET', keys.admissions, user) then
      redis.call('SREM', keys.guests, user)
      if place then
        redis.call('ZADD', keys.waiting, 'NX', place, user)
        record_sign(keys, room, number_of(place), second)
      end
    end
    noted[#noted + 1] = {user, place and text(place) or '', text(admission)}
  end
end
log_step(keys, room, 'rolled_back', noted)
if #noted > 0 then notify_watchers(keys) end
if wake_worker == 1 and #noted > 0 then send_wakeup(keys.wake) end
return #noted
