-- Give those who were on the way, and did not come in, the places that they had.
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
---@arg entered     packed  list of {user, admission}
---@arg rings       int     1 wakes whoever admits; 0 where he knows, and waits for the database
---@arg now_ms      time
---@include signs
---@include entry
---@include journal
---@include ring
-- Reply: how many of them were on the way
-- They are as silent as they were before: one who is gone does not come back to life by this.

local room = read_book()
if not room then return 0 end
local noted = {}
for _, each in ipairs(entered) do
  local user, admission = unpack(each)
  local entry = end_entry(user, admission)
  if entry then
    local place, second = unpack(entry, 1, 2)
    if not redis.call('HGET', admissions, user) then
      redis.call('SREM', guests, user)
      if place then
        redis.call('ZADD', waiting, 'NX', place, user)
        watch(room, number_of(place), second)
      end
    end
    noted[#noted + 1] = {user, place and text(place) or '', text(admission)}
  end
end
note(room, 'rolled_back', noted)
if #noted > 0 then stirred() end
if rings == 1 and #noted > 0 then ring() end
return #noted
