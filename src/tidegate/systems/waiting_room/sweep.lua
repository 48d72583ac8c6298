-- Remove waiting visitors without a sign of life, wherever they are in the line.
---@keyset keys
---@arg most      int     visitors that are removed in this step; if there are more, they are due at once
---@arg now_ms    time
---@include signs
---@include log_step
-- Reply: {'swept', how many were removed, ms until the next can be overdue | -1} | {'unknown'}
-- A chunk is only read when its oldest sign of life, as of the last check, is overdue.

local MOST_CHUNKS = 4

local room = read_room_with_rate(keys)
if not room then return {'unknown'} end
local seed, dropped = redis.call('HGET', keys.book, 'seed'), {}

local function drop(number)
  for _, place in ipairs({number, drawn_place(seed, number)}) do
    for _, user in ipairs(redis.call('ZRANGEBYSCORE', keys.waiting, text(place), text(place))) do
      redis.call('ZREM', keys.waiting, user)
      dropped[#dropped + 1] = {user, text(place)}
    end
  end
  set_sign(keys, room, number, 0)
end

for _, chunk in ipairs(redis.call('ZRANGEBYSCORE', keys.chunks, '-inf', now_ms, 'LIMIT', 0, MOST_CHUNKS)) do
  if #dropped >= most then break end
  local first = math.max(tonumber(chunk) * CHUNK, room.base)
  local offset = offset_of(room, first)
  local words = redis.call('GETRANGE', keys.seen, offset, offset + 4 * CHUNK - 1)
  local oldest
  for at = 1, #words - 3, 4 do
    local second = struct.unpack('>I4', words, at)
    if second > 0 and gone_at(room, second) <= now_ms and #dropped < most then
      drop(first + (at - 1) / 4)
    elseif second > 0 and (not oldest or second < oldest) then
      oldest = second
    end
  end
  if oldest then
    redis.call('ZADD', keys.chunks, gone_at(room, oldest), chunk)
  else
    redis.call('ZREM', keys.chunks, chunk)
  end
end
log_step(keys, room, 'dropped', dropped)
record_move(keys, now_ms, 0, #dropped)
local next_ms = tonumber(redis.call('ZRANGE', keys.chunks, 0, 0, 'WITHSCORES')[2])
return {'swept', #dropped, next_ms and math.max(next_ms - now_ms, 0) or -1}
