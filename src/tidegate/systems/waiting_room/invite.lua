-- Take named users in at once, beside the capacity: the first step of their admission.
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
---@arg users       packed  list of users
---@arg settle_ms   int     after so long somebody else may settle it
---@arg now_ms      time
---@include signs
---@include entry
---@include journal
---@include run
---@include ring
-- Reply: {'taken', epoch, list of {user, admission, place | nothing if he did not wait}} | {'unknown'}
-- Whoever is inside already, or on the way, is left out.

local room = read_doors()
if not room or room.paused_until_ms > 0 or not is_installed_here() then return {'unknown'} end
local taken, noted = {}, {}
for _, user in ipairs(users) do
  if not redis.call('HGET', admissions, user) and not redis.call('HGET', entries, user) then
    local place = tonumber(redis.call('ZSCORE', waiting, user))
    local admission, second = next_admission(room, now_ms), 0
    if place then
      second = last_sign(room, number_of(place))
      set_sign(room, number_of(place), 0)
      redis.call('ZREM', waiting, user)
    end
    begin_entry(user, admission, place, second, now_ms + settle_ms)
    redis.call('SADD', guests, user)
    taken[#taken + 1] = {user, admission, place}
    noted[#noted + 1] = {user, place and text(place) or '', text(admission)}
  end
end
redis.call('HSET', book, 'admissions', text(room.admissions))
note(room, 'invited', noted)
if #noted > 0 then
  stirred()
  ring()  -- whoever keeps the room has to know until when this is to be finished: its caller may die
end
return {'taken', room.epoch, taken}
