-- Where users stand. To ask is a sign of life.
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
---@arg users       packed  list of users
---@arg now_ms      time
---@include signs
---@include further
-- Reply: {'seen', ms until the opening, how many wait, for each user {'waiting', place, rank | -1 before the opening}
--        | {'entering', admission, place | nothing} | {'active', admission, ms left} | {'nowhere'}, epoch} | {'unknown'}

local room = read_book()
if not room then return {'unknown'} end
local is_before, second = is_before_start(room, now_ms), math.floor(now_ms / 1000)

local function standing(user)
  local place = tonumber(redis.call('ZSCORE', waiting, user))
  if place then
    -- Its chunk is looked at when the first sign in it can be too old; a newer sign needs nothing more.
    set_sign(room, number_of(place), second)
    return {'waiting', place, is_before and -1 or redis.call('ZRANK', waiting, user)}
  end
  local found = further(user) or {'nowhere'}
  if found[1] == 'entering' then refresh_entry(user, second) end
  return found
end

local found = {}
for n, user in ipairs(users) do found[n] = standing(user) end
return {'seen', math.max(room.opens_ms - now_ms, 0), redis.call('ZCARD', waiting), found, room.epoch}
