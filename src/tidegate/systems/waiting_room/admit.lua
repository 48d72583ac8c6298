-- Take visitors out of the front of the line, as many as capacity and rate allow: the first step of an admission.
---@keyset keys
---@arg fence       int     fencing number of the leader that calls
---@arg most        int     at most 100
---@arg settle_ms   int     after this time another process may settle the admission
---@arg now_ms      time
---@include signs
---@include entry
---@include log_step
---@include run
---@include numbers
-- Reply: {'taken', epoch, list of {user, admission, place}, ms until more can be taken | -1 until the next wake-up,
--   removed visitors, length of the line, 1 if SQL must reserve more numbers}
--   | {'replaced'} a later leader has taken the room over
--   | {'unknown'} the caller must install the room first, which completes or reverts the admissions in progress
-- Order: no visitor is taken while the admission of a user with a lower place is in progress, since it may be reverted.

local room = read_room_with_rate(keys)
if not room or not is_installed_here(keys) then return {'unknown'} end
if fence < room.fence then return {'replaced'} end
if fence > room.fence then return {'unknown'} end
if room.paused_until_ms > 0 then
  -- The installer wakes the worker when it is done; if it is late, this caller must install.
  if room.paused_until_ms <= now_ms then return {'unknown'} end
  return {'taken', room.epoch, {}, room.paused_until_ms - now_ms, 0, redis.call('ZCARD', keys.waiting), 0}
end
local is_unfinished, invited_place = in_progress(keys)
if is_unfinished then return {'unknown'} end
local needs_numbers = is_low(room) and 1 or 0
if room.state ~= 'open' or is_before_start(keys, room, now_ms) then
  local wait_ms = room.state == 'open' and room.opens_ms - now_ms or -1
  return {'taken', room.epoch, {}, wait_ms, 0, redis.call('ZCARD', keys.waiting), needs_numbers}
end

local free, allowed = room.capacity - count_inside(keys), most
-- At most one burst ahead, unless the clock was set back: then visitors do not wait for it to catch up.
local from_ms = math.min(math.max(room.tat_ms, now_ms), now_ms + room.burst * room.interval_ms)
if room.interval_ms > 0 then
  -- Bounds any span of time: each admission moves the mark on, which may be ahead of now by the burst.
  allowed = math.floor((room.burst * room.interval_ms - (from_ms - now_ms)) / room.interval_ms + 1e-6)
end
local wanted = math.min(most, free, allowed)

local taken, gone, noted = {}, {}, {}
-- Visitors behind a user with an invitation in progress wait; the end of the invitation sends a wake-up.
local last_place = invited_place and '(' .. text(invited_place) or '+inf'
while #taken < wanted and #gone < 1000 do
  local front = redis.call('ZRANGEBYSCORE', keys.waiting, '-inf', last_place, 'WITHSCORES', 'LIMIT', 0, wanted - #taken)
  if #front == 0 then break end
  for n = 1, #front, 2 do
    local user, place = front[n], tonumber(front[n + 1])
    local number = number_of(place)
    redis.call('ZREM', keys.waiting, user)
    if is_gone(keys, room, number, now_ms) then
      gone[#gone + 1] = {user, text(place)}
    else
      local admission = next_admission(room, now_ms)
      begin_entry(keys, user, admission, place, last_sign(keys, room, number), now_ms + settle_ms)
      taken[#taken + 1] = {user, admission, place}
      noted[#noted + 1] = {user, text(place), text(admission)}
    end
    set_sign(keys, room, number, 0)
  end
end

local left, wait_ms = redis.call('ZCARD', keys.waiting), -1
local mark_ms = from_ms + #taken * room.interval_ms
if left > 0 and #taken < free and not (invited_place and #taken < wanted) then
  local is_held_up = room.interval_ms > 0 and #taken >= allowed
  wait_ms = is_held_up and math.max(math.ceil(mark_ms - (room.burst - 1) * room.interval_ms) - now_ms, 0) or 0
end
if #taken > 0 then
  redis.call('HSET', keys.book, 'admissions', text(room.admissions), 'tat_ms', string.format('%.3f', mark_ms))
end
log_step(keys, room, 'dropped', gone)
log_step(keys, room, 'entering', noted)
record_move(keys, now_ms, #taken, #gone)
return {'taken', room.epoch, taken, wait_ms, #gone, left, needs_numbers}
