-- Free the places of sessions that SQL says are over.
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
---@arg sessions    packed  list of {user, admission}
---@arg what        str     'left' or 'expired'
---@include entry
---@include journal
---@include ring
-- Reply: how many of them were inside, or on the way
-- A user's newer admission is not touched.

local room = read_book()
if not room then return 0 end
local noted = {}
for _, session in ipairs(sessions) do
  local user, admission = unpack(session)
  local was_inside = tonumber(redis.call('HGET', admissions, user)) == admission
  if was_inside then
    redis.call('HDEL', admissions, user)
    redis.call('ZREM', active, user)
  end
  if was_inside or end_entry(user, admission) then
    redis.call('SREM', guests, user)
    noted[#noted + 1] = {user, '', text(admission)}
  end
end
note(room, what, noted)
if #noted > 0 then
  stirred()
  ring()
end
return #noted
