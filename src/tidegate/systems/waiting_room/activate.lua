-- Tell the room what SQL says of sessions: who was on the way is inside, and how long each lasts.
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
---@arg sessions    packed  list of {user, admission, ms left}
---@arg now_ms      time
---@include entry
---@include journal
---@include ring
-- Reply: how many of them came in by this
-- An admission that is neither on the way nor inside changes nothing: somebody else settled it.

local room = read_book()
if not room then return 0 end
local before = tonumber(redis.call('ZRANGE', active, 0, 0, 'WITHSCORES')[2])
local noted, has_guest = {}, false
for _, session in ipairs(sessions) do
  local user, admission, left_ms = unpack(session)
  if end_entry(user, admission) then
    redis.call('ZADD', active, now_ms + left_ms, user)
    redis.call('HSET', admissions, user, text(admission))
    noted[#noted + 1] = {user, '', text(admission)}
    has_guest = has_guest or redis.call('SISMEMBER', guests, user) == 1
  elseif tonumber(redis.call('HGET', admissions, user)) == admission then
    redis.call('ZADD', active, now_ms + left_ms, user)
  end
end
note(room, 'admitted', noted)
if #noted > 0 then stirred() end
local first = tonumber(redis.call('ZRANGE', active, 0, 0, 'WITHSCORES')[2])
-- The keeper may sleep until a later end of a session, or wait for the end of an invitation.
if has_guest or (first and (not before or first < before)) then ring() end
return #noted
