-- Return overdue admissions, and sessions that are over. SQL decides what becomes of them.
---@keyset keys
---@arg most        int   at most 1,000
---@arg now_ms      time
-- Reply: {'due', admissions as {user, admission}, sessions as {user, admission}, ms until the next | -1} | {'unknown'}

if redis.call('EXISTS', keys.book) == 0 then return {'unknown'} end
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

local overdue, ended = due(keys.entering, keys.entries), due(keys.active, keys.admissions)
return {'due', overdue, ended, next_ms and next_ms - now_ms or -1}
