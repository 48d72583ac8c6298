-- Signs of life: four bytes for each arrival number, the second in which somebody was last seen; 0 is nobody.
---@include draw
local CHUNK, MOST_WORDS = 1024, 2 ^ 26

-- nil for a number without a word: such a one is never taken for gone.
local function offset_of(room, number)
  local index = number - room.base
  if index < 0 or index >= MOST_WORDS then return nil end
  return index * 4
end

local function last_sign(keys, room, number)
  local offset = offset_of(room, number)
  local word = offset and redis.call('GETRANGE', keys.seen, offset, offset + 3) or ''
  return #word == 4 and struct.unpack('>I4', word) or 0
end

local function set_sign(keys, room, number, second)
  local offset = offset_of(room, number)
  if offset then redis.call('SETRANGE', keys.seen, offset, struct.pack('>I4', second)) end
end

-- When somebody who was last seen in this second is gone: never early, since a second has an end. While the server was
-- away nobody could be heard, so for those who drop people silence counts from when it was back.
local function gone_at(room, second)
  return (math.max(second, room.heard_from_s or 0) + 1) * 1000 + room.abandon_ms
end

local function is_gone(keys, room, number, now_ms)
  local second = last_sign(keys, room, number)
  return second > 0 and gone_at(room, second) <= now_ms
end

-- Note a sign of life of somebody who waits, and have it looked at in time. Whether nobody was watched before.
local function record_sign(keys, room, number, second)
  set_sign(keys, room, number, second)
  if not offset_of(room, number) then return false end
  local is_new = redis.call('ZADD', keys.chunks, 'LT', gone_at(room, second), math.floor(number / CHUNK)) == 1
  return is_new and redis.call('ZCARD', keys.chunks) == 1
end
