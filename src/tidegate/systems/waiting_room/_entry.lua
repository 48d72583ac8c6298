-- Admissions in progress: the visitor is out of the line, and SQL does not know the session yet.
---@include room

local function begin_entry(keys, user, admission, place, second, until_ms)
  redis.call('HSET', keys.entries, user, text(admission) .. '|' .. (place and text(place) or '') .. '|' .. text(second))
  redis.call('ZADD', keys.entering, until_ms, user)
end

-- Return {'entering', admission, place or nothing}; nil if no admission is in progress.
local function entry_of(keys, user)
  local admission, place = string.match(redis.call('HGET', keys.entries, user) or '', '^(%d+)|(-?%d*)|')
  return admission and {'entering', tonumber(admission), tonumber(place)}
end

-- Record a sign of life during an admission; it is kept in case the admission is reverted.
local function refresh_entry(keys, user, second)
  redis.call('HSET', keys.entries, user, (string.gsub(redis.call('HGET', keys.entries, user), '%d+$', text(second))))
end

-- Return whether an admission in progress counts against the capacity, and the lowest place of an invited user.
local function in_progress(keys)
  local lowest
  local found = redis.call('HGETALL', keys.entries)
  for n = 1, #found, 2 do
    if redis.call('SISMEMBER', keys.guests, found[n]) == 0 then return true, nil end
    local place = tonumber(string.match(found[n + 1], '^%d+|(-?%d*)|'))
    if place and (not lowest or place < lowest) then lowest = place end
  end
  return false, lowest
end

-- Remove the entry if it belongs to this admission. Return {place or nil, last sign of life}, else nil.
local function end_entry(keys, user, admission)
  local found = redis.call('HGET', keys.entries, user)
  if not found then return nil end
  local number, place, second = string.match(found, '^(%d+)|(-?%d*)|(%d+)$')
  if tonumber(number) ~= admission then return nil end
  redis.call('HDEL', keys.entries, user)
  redis.call('ZREM', keys.entering, user)
  return {tonumber(place), tonumber(second)}
end

-- Admission numbers continue to grow after the server has lost its data: at least a hundred per ms.
local function next_admission(room, now_ms)
  room.admissions = math.max(room.admissions + 1, now_ms * 100)
  return room.admissions
end
