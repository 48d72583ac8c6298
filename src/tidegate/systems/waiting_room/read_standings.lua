-- Return where users stand. The call is a sign of life.
---@keyset keys
---@arg users       packed  list of users
---@arg now_ms      time
---@include signs
---@include admission_of
-- Reply: {'seen', ms until the start, length of the line, for each user
--   {'waiting', place, rank | -1 before the start} | {'entering', admission, place | nothing}
--   | {'active', admission, ms left} | {'nowhere'}, epoch} | {'unknown'}

local room = read_room(keys)
if not room then return {'unknown'} end
local is_before, second = is_before_start(keys, room, now_ms), math.floor(now_ms / 1000)

local function standing(user)
  local place = tonumber(redis.call('ZSCORE', keys.waiting, user))
  if place then
    -- The chunk is checked when its oldest sign can be overdue; a newer sign changes nothing.
    set_sign(keys, room, number_of(place), second)
    return {'waiting', place, is_before and -1 or redis.call('ZRANK', keys.waiting, user)}
  end
  local found = admission_of(keys, user, now_ms) or {'nowhere'}
  if found[1] == 'entering' then refresh_entry(keys, user, second) end
  return found
end

local found = {}
for n, user in ipairs(users) do found[n] = standing(user) end
return {'seen', math.max(room.opens_ms - now_ms, 0), redis.call('ZCARD', keys.waiting), found, room.epoch}
