-- Add visitors to the end of the line or to a previous place, in this order; a visitor in line keeps the place.
---@keyset keys
---@arg attempts    packed  list of {user, claim}; the claim is
--                          '' | '?' the visitor had a place: reply 'claim' instead of giving a new one
--                          | place|sql_epoch: SQL says, as of this epoch, that the place was not used
---@arg now_ms      time
---@include signs
---@include numbers
---@include admission_of
---@include log_step
---@include send_wakeup
-- Reply: {'joined', ms until the start, epoch, for each attempt
--   {'waiting', place, rank | -1 before the start, 1 if new} | {'claim', sql_epoch} | {'closed'}
--   | {'entering', admission, place | nothing} | {'active', admission, ms left}} | {'unknown'} the room must be installed
-- Repeating the call finds the visitors.

local room = read_room(keys)
if not room then return {'unknown'} end
local is_before, second, rings = is_before_start(keys, room, now_ms), math.floor(now_ms / 1000), false

local function waits(user, place, rank, is_new)
  if is_before then rank = -1 end
  return {'waiting', place, rank or redis.call('ZRANK', keys.waiting, user), is_new}
end

-- The reply of one attempt; nil if the room must be installed before a number can be given.
local function join(user, claim)
  local place = tonumber(redis.call('ZSCORE', keys.waiting, user))
  if place then
    set_sign(keys, room, number_of(place), second)
    return waits(user, place, nil, 0)
  end
  local found = admission_of(keys, user, now_ms)
  if found then
    if found[1] == 'entering' then refresh_entry(keys, user, second) end
    return found
  end
  if room.state ~= 'open' then return {'closed'} end
  if claim ~= '' then
    -- What was read from SQL under an older epoch may be outdated: the visitor may have been inside since.
    local asked, sql_epoch = string.match(claim, '^(-?%d+)|(%d+)$')
    local present = tonumber(redis.call('HGET', keys.book, 'sql_epoch') or 0)
    if tonumber(sql_epoch) ~= present then return {'claim', present} end
    place = tonumber(asked)
  end

  local kept = is_before and redis.call('HGET', keys.book, 'lot:' .. user)
  if kept then redis.call('HDEL', keys.book, 'lot:' .. user) end
  place = place or tonumber(kept)
  local before = room.arrivals
  if not place and not can_count(keys, room, now_ms) then return nil end
  if place then
    -- The server may have lost its last writes: the number was given, and must not be given again.
    room.arrivals = math.max(room.arrivals, number_of(place))
  else
    room.arrivals = room.arrivals + 1
    place = room.arrivals
    if is_before and place < DRAWN then place = drawn_place(redis.call('HGET', keys.book, 'seed'), place) end
  end
  redis.call('HSET', keys.book, 'arrivals', text(room.arrivals))
  redis.call('ZADD', keys.waiting, place, user)
  log_step(keys, room, 'joined', {{user, text(place)}})

  local is_last = place == room.arrivals
  local rank = is_last and redis.call('ZCARD', keys.waiting) - 1 or redis.call('ZRANK', keys.waiting, user)
  if rank == 0 and is_last and place - room.base > 64 * CHUNK and redis.call('ZCARD', keys.entering) == 0 then
    -- No signs of life of waiting visitors are left.
    room.base = math.floor(place / CHUNK) * CHUNK
    redis.call('UNLINK', keys.seen, keys.chunks)
    redis.call('HSET', keys.book, 'base', room.base)
  end
  -- Only the first in line wakes the worker, also if the rate delays the admission: the worker last saw an empty line.
  -- About visitors behind, the worker knows, or has the time of its next check.
  if rank == 0 and not is_before and count_inside(keys) < room.capacity then rings = true end
  if may_be_low(room, before) then rings = true end
  if record_sign(keys, room, number_of(place), second) then rings = true end
  return waits(user, place, rank, 1)
end

local found = {}
for n, attempt in ipairs(attempts) do
  found[n] = join(attempt[1], attempt[2])
  if not found[n] then break end
end
-- Also if the room must be installed: a repetition finds the visitors that were added, and wakes no worker for them.
if rings then send_wakeup(keys.wake) end
if #found < #attempts then return {'unknown'} end
return {'joined', math.max(room.opens_ms - now_ms, 0), room.epoch, found}
