-- Leave the line. Whoever is further is only told about: of those SQL decides first.
--
---@key book        hash    the room's rules and counters
---@key waiting     zset    user scored by place
---@key entering    zset    user scored by when somebody else settles it, ms
---@key entries     hash    user -> admission|place|last sign of life
---@key active      zset    user scored by the end of the session, ms
---@key admissions  hash    user -> admission
---@key guests      set     those who came in beside the capacity
---@key seen        string  signs of life
---@key chunks      zset    when to look for the silent, ms
---@key log         stream  every step
---@key moves       stream  the last steps by which the line got shorter
---@key wake        list    at most one token
---@arg user        str
---@arg now_ms      time
---@include signs
---@include further
---@include journal
-- Reply: {'left', place} | {'nowhere'} | {'entering', admission, place | nothing} | {'active', admission, ms left}
--        | {'unknown'}

local room = read_book()
if not room then return {'unknown'} end
local place = tonumber(redis.call('ZSCORE', waiting, user))
if place then
  redis.call('ZREM', waiting, user)
  set_sign(room, number_of(place), 0)
  -- Until the start his lot stays his: else one would come again and again, and keep the best of many.
  if is_before_start(room, now_ms) then redis.call('HSET', book, 'lot:' .. user, text(place)) end
  note(room, 'gave_up', {{user, text(place)}})
  moved(now_ms, 0, 1)
  return {'left', place}
end
return further(user) or {'nowhere'}
