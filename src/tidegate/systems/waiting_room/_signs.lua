-- Signs of life: four bytes per arrival number, the second in which the visitor was last seen; 0: not in line.
---@include draw
local CHUNK, MOST_WORDS = 1024, 2 ^ 26

-- Offset of a number; nil for a number without a word; its visitor is never removed.
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

-- When a visitor that was last seen in this second is overdue; never early, since a second has an end. Visitors could
-- not be heard while the server was unavailable, so for removals the time counts from its return.
local function gone_at(room, second)
  return (math.max(second, room.heard_from_s or 0) + 1) * 1000 + room.abandon_ms
end

local function is_gone(keys, room, number, now_ms)
  local second = last_sign(keys, room, number)
  return second > 0 and gone_at(room, second) <= now_ms
end

-- Record a sign of life of a waiting visitor, and schedule its check. Return whether no visitor was checked before.
local function record_sign(keys, room, number, second)
  set_sign(keys, room, number, second)
  if not offset_of(room, number) then return false end
  local is_new = redis.call('ZADD', keys.chunks, 'LT', gone_at(room, second), math.floor(number / CHUNK)) == 1
  return is_new and redis.call('ZCARD', keys.chunks) == 1
end
