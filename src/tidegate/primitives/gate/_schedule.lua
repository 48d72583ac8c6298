-- What has to happen later: `j|job` a job's delay ends, `d|pool|bucket` a bucket may dispatch again.
---@include send_wakeup
local function schedule(keys, entry, at)
  local first = redis.call('ZRANGE', keys.due, 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', keys.due, at, entry)
  if not first or at < tonumber(first) then send_wakeup(keys.wake) end
end

-- In how many ms the next entry is due; -1 where there is none.
local function next_due_in(keys, now)
  local first = redis.call('ZRANGE', keys.due, 0, 0, 'WITHSCORES')[2]
  return first and math.max(0, tonumber(first) - now) or -1
end
