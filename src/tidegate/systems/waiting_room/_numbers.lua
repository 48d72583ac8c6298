-- Arrival numbers. Only numbers that SQL reserved for this run of the server are given, since a restarted server may
-- have forgotten the last number that it gave.
---@include room
---@include run
-- A server cannot restart within so few ms, so most joins of a rush need not ask for the run id.
local SAME_RUN_MS = 5
-- The worker is woken each time so many numbers were given: half of the smallest reservation.
local TOLD_EACH = 2 ^ 13

-- Whether the next arrival number is free.
local function can_count(keys, room, now_ms)
  if room.arrivals >= room.reserved then return false end
  if math.abs(now_ms - room.counted_ms) < SAME_RUN_MS then return true end
  if not is_installed_here(keys) then return false end
  redis.call('HSET', keys.book, 'counted_ms', text(now_ms))
  room.counted_ms = now_ms
  return true
end

-- Whether half of the last reservation is used; `room` comes from `read_room_with_rate`.
local function is_low(room) return room.reserved - room.arrivals <= room.low end

-- Whether the numbers can be low now, and could not when `before` was the last one.
local function may_be_low(room, before)
  return math.floor(before / TOLD_EACH) ~= math.floor(room.arrivals / TOLD_EACH)
end
