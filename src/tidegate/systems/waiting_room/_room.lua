-- The room as it was installed, and the number of visitors inside.

-- Read what joins need; nil if the server does not have the room. Each field costs every join.
local function read_room(keys)
  local found = redis.call('HMGET', keys.book, 'epoch', 'state', 'opens_ms', 'capacity', 'abandon_ms', 'base', 'arrivals',
    'reserved', 'log_most', 'counted_ms')
  if not found[1] then return nil end
  local function number(n) return tonumber(found[n] or 0) end
  return {
    epoch = number(1), state = found[2], opens_ms = number(3), capacity = number(4), abandon_ms = number(5),
    base = number(6), arrivals = number(7), reserved = number(8), log_most = number(9),
    counted_ms = number(10),
  }
end

-- Read the fields above, and those that admissions need.
local function read_room_with_rate(keys)
  local room = read_room(keys)
  if not room then return nil end
  local found = redis.call('HMGET', keys.book, 'interval_ms', 'burst', 'tat_ms', 'admissions', 'paused_until_ms',
    'heard_from_s', 'low', 'fence')
  local function number(n) return tonumber(found[n] or 0) end
  room.interval_ms, room.burst, room.tat_ms = number(1), number(2), number(3)
  room.admissions, room.paused_until_ms, room.heard_from_s = number(4), number(5), number(6)
  room.low, room.fence = number(7), number(8)
  return room
end

-- Whether the start is still to come. It does not come again when the clock is set back: the seed may be public by
-- then, and a place drawn later would be ahead of all arrival numbers.
local function is_before_start(keys, room, now_ms)
  if now_ms < room.opens_ms then return true end
  if room.opens_ms > 1 then
    room.opens_ms = 1
    redis.call('HSET', keys.book, 'opens_ms', 1)
  end
  return false
end

-- Number of visitors that count against the capacity.
local function count_inside(keys)
  return redis.call('ZCARD', keys.entering) + redis.call('ZCARD', keys.active) - redis.call('SCARD', keys.guests)
end

-- Format a whole number; Lua's own conversion has 14 digits.
local function text(number) return string.format('%.0f', number) end
