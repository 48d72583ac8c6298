-- Drop those who wait and have given no sign of life for too long, wherever in the line they are.
--
---@key book        hash    the room's rules and counters
---@key waiting     zset    user scored by place
---@key entering    zset    user scored by when somebody else settles it, ms
---@key entries     hash    user -> admission|place|last sign of life
---@key active      zset    user scored by the end of the session, ms
---@key admissions  hash    user -> admission
---@key guests      set     those who came in beside the capacity
---@key seen        string  signs of life
---@key chunks      zset    when to look for the silent, ms
---@key log         stream  every step
---@key moves       stream  the last steps by which the line got shorter
---@key wake        list    at most one token
---@arg most      int     so many are dropped in this step; if there are more, they are due at once
---@arg now_ms    time
---@include signs
---@include journal
-- Reply: {'swept', how many were dropped, ms until the next can be too old | -1} | {'unknown'}
-- A chunk is looked at when the oldest sign in it, as it was last time, is too old: nothing is read for nothing.

local MOST_CHUNKS = 4

local room = read_doors()
if not room then return {'unknown'} end
local seed, dropped = redis.call('HGET', book, 'seed'), {}

local function drop(number)
  for _, place in ipairs({number, drawn_place(seed, number)}) do
    for _, user in ipairs(redis.call('ZRANGEBYSCORE', waiting, text(place), text(place))) do
      redis.call('ZREM', waiting, user)
      dropped[#dropped + 1] = {user, text(place)}
    end
  end
  set_sign(room, number, 0)
end

for _, chunk in ipairs(redis.call('ZRANGEBYSCORE', chunks, '-inf', now_ms, 'LIMIT', 0, MOST_CHUNKS)) do
  if #dropped >= most then break end
  local first = math.max(tonumber(chunk) * CHUNK, room.base)
  local offset = offset_of(room, first)
  local words = redis.call('GETRANGE', seen, offset, offset + 4 * CHUNK - 1)
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
    redis.call('ZADD', chunks, gone_at(room, oldest), chunk)
  else
    redis.call('ZREM', chunks, chunk)
  end
end
note(room, 'dropped', dropped)
moved(now_ms, 0, #dropped)
local next_ms = tonumber(redis.call('ZRANGE', chunks, 0, 0, 'WITHSCORES')[2])
return {'swept', #dropped, next_ms and math.max(next_ms - now_ms, 0) or -1}
