-- Those who are between the line and the room: out of the one, not yet known to SQL as in the other.
---@key entering    zset  user scored by when somebody else settles it, ms
---@key entries     hash  user -> admission|place|last sign of life; without a place, they never waited
---@key guests      set   those who came in beside the capacity
---@include room

local function begin_entry(user, admission, place, second, until_ms)
  redis.call('HSET', entries, user, text(admission) .. '|' .. (place and text(place) or '') .. '|' .. text(second))
  redis.call('ZADD', entering, until_ms, user)
end

-- As it is told: {'entering', admission, place or nothing}; nil for one who is not on the way.
local function entry_of(user)
  local admission, place = string.match(redis.call('HGET', entries, user) or '', '^(%d+)|(-?%d*)|')
  return admission and {'entering', tonumber(admission), tonumber(place)}
end

-- A sign of life of a user whose admission is in progress; kept for the case that the admission is reverted.
local function refresh_entry(user, second)
  redis.call('HSET', entries, user, (string.gsub(redis.call('HGET', entries, user), '%d+$', text(second))))
end

-- What admissions are in progress: whether any counts against the capacity, and the lowest place of an invited user.
local function in_progress()
  local lowest
  local found = redis.call('HGETALL', entries)
  for n = 1, #found, 2 do
    if redis.call('SISMEMBER', guests, found[n]) == 0 then return true, nil end
    local place = tonumber(string.match(found[n + 1], '^%d+|(-?%d*)|'))
    if place and (not lowest or place < lowest) then lowest = place end
  end
  return false, lowest
end

-- Take the entry out if it is that of this admission: {place or nil, last sign of life}, else nil.
local function end_entry(user, admission)
  local found = redis.call('HGET', entries, user)
  if not found then return nil end
  local number, place, second = string.match(found, '^(%d+)|(-?%d*)|(%d+)$')
  if tonumber(number) ~= admission then return nil end
  redis.call('HDEL', entries, user)
  redis.call('ZREM', entering, user)
  return {tonumber(place), tonumber(second)}
end

-- Admissions are numbered, and go on growing when the server has lost its data: at least a hundred for each ms.
local function next_admission(room, now_ms)
  room.admissions = math.max(room.admissions + 1, now_ms * 100)
  return room.admissions
end
