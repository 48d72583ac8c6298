-- Signs of life: four bytes for each arrival number, the second in which somebody was last seen; 0 is nobody.
---@key seen    string  words of four bytes, from the number `base` on
---@key chunks  zset    number / 1024, scored by when its first can have been silent for too long, ms
---@include draw
local CHUNK, MOST_WORDS = 1024, 2 ^ 26

-- nil for a number without a word: such a one is never taken for gone.
local function offset_of(room, number)
  local index = number - room.base
  if index < 0 or index >= MOST_WORDS then return nil end
  return index * 4
end

local function last_sign(room, number)
  local offset = offset_of(room, number)
  local word = offset and redis.call('GETRANGE', seen, offset, offset + 3) or ''
  return #word == 4 and struct.unpack('>I4', word) or 0
end

local function set_sign(room, number, second)
  local offset = offset_of(room, number)
  if offset then redis.call('SETRANGE', seen, offset, struct.pack('>I4', second)) end
end

-- When somebody who was last seen in this second is gone: never early, since a second has an end. While the server was
-- away nobody could be heard, so for those who drop people silence counts from when it was back.
local function gone_at(room, second)
  return (math.max(second, room.heard_from_s or 0) + 1) * 1000 + room.abandon_ms
end

local function is_gone(room, number, now_ms)
  local second = last_sign(room, number)
  return second > 0 and gone_at(room, second) <= now_ms
end

-- Note a sign of life of somebody who waits, and have it looked at in time. Whether nobody was watched before.
local function watch(room, number, second)
  set_sign(room, number, second)
  if not offset_of(room, number) then return false end
  local is_new = redis.call('ZADD', chunks, 'LT', gone_at(room, second), math.floor(number / CHUNK)) == 1
  return is_new and redis.call('ZCARD', chunks) == 1
end
