-- What has to happen later: `j|job` a job's delay ends, `o|pool|bucket` a gate may open again.
---@key due  zset  what, scored by when in ms
---@include ring
local function plan(what, at)
  local first = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', due, at, what)
  if not first or at < tonumber(first) then
    ring()
  end
end

local function next_due_in(now)
  local first = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]
  return first and math.max(0, tonumber(first) - now) or -1
end
