-- How the room is.
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
---@arg now_ms    time
---@include room
-- Reply: {'room', waiting, on the way, inside, guests, ms until the opening} | {'unknown'}

local room = read_book()
if not room then return {'unknown'} end
return {'room', redis.call('ZCARD', waiting), redis.call('ZCARD', entering), redis.call('ZCARD', active),
  redis.call('SCARD', guests), math.max(room.opens_ms - now_ms, 0)}
