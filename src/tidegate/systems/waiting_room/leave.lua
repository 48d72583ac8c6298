-- Leave the line. A visitor that is inside or being admitted is only reported, since SQL decides first.
---@keyset keys
---@arg user        str
---@arg now_ms      time
---@include signs
---@include admission_of
---@include log_step
-- Reply: {'left', place} | {'nowhere'} | {'entering', admission, place | nothing} | {'active', admission, ms left}
--        | {'unknown'}

local room = read_room(keys)
if not room then return {'unknown'} end
local place = tonumber(redis.call('ZSCORE', keys.waiting, user))
if place then
  redis.call('ZREM', keys.waiting, user)
  set_sign(keys, room, number_of(place), 0)
  -- Until the start the drawn place stays reserved; a visitor could join again and again for a better one otherwise.
  if is_before_start(keys, room, now_ms) then redis.call('HSET', keys.book, 'lot:' .. user, text(place)) end
  log_step(keys, room, 'gave_up', {{user, text(place)}})
  record_move(keys, now_ms, 0, 1)
  return {'left', place}
end
return admission_of(keys, user, now_ms) or {'nowhere'}
