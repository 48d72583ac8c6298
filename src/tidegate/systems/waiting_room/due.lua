-- Whose time is up: those on the way for too long, and sessions that can be over. SQL decides what becomes of them.
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
---@arg most        int   at most 1,000
---@arg now_ms      time
-- Reply: {'due', list of {user, admission} on the way, list of {user, admission} inside, ms until the next | -1}
--        | {'unknown'}

if redis.call('EXISTS', book) == 0 then return {'unknown'} end
local next_ms

local function due(times, records)
  local users = redis.call('ZRANGEBYSCORE', times, '-inf', now_ms, 'LIMIT', 0, most)
  local found = {}
  for n, user in ipairs(users) do
    found[n] = {user, tonumber(string.match(redis.call('HGET', records, user) or '0', '^%d+'))}
  end
  local later = redis.call('ZRANGEBYSCORE', times, '(' .. string.format('%.0f', now_ms), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  local at_ms = #users == most and now_ms or tonumber(later[2])
  if at_ms and (not next_ms or at_ms < next_ms) then next_ms = at_ms end
  return found
end

local overdue, ended = due(entering, entries), due(active, admissions)
return {'due', overdue, ended, next_ms and next_ms - now_ms or -1}
