-- Arrival numbers. Those that SQL set aside for this run of the server are given, and no others: one that was started
-- again may have forgotten the last that it gave.
---@include room
---@include run
-- No server is killed and there again within so few ms: most of a crowd need not ask which run this is.
local SAME_RUN_MS = 5
-- Whoever keeps the room is told this often: half of the fewest that are set aside.
local TOLD_EACH = 2 ^ 13

-- Whether the next number is nobody's yet.
local function can_count(keys, room, now_ms)
  if room.arrivals >= room.reserved then return false end
  if math.abs(now_ms - room.counted_ms) < SAME_RUN_MS then return true end
  if not is_installed_here(keys) then return false end
  redis.call('HSET', keys.book, 'counted_ms', text(now_ms))
  return true
end

-- Whether half of those that were last set aside are given; of a room as `read_room_with_rate` has it.
local function is_low(room) return room.reserved - room.arrivals <= room.low end

-- Whether they may be low now, and were not when `before` was the last.
local function may_be_low(room, before)
  return math.floor(before / TOLD_EACH) ~= math.floor(room.arrivals / TOLD_EACH)
end
