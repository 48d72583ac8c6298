-- Count the visitors of the room in each state.
---@keyset keys
---@arg now_ms    time
---@include room
-- Reply: {'room', waiting, being admitted, inside, guests, ms until the start} | {'unknown'}

local room = read_room(keys)
if not room then return {'unknown'} end
return {'room', redis.call('ZCARD', keys.waiting), redis.call('ZCARD', keys.entering), redis.call('ZCARD', keys.active),
  redis.call('SCARD', keys.guests), math.max(room.opens_ms - now_ms, 0)}
