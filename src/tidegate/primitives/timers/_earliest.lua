-- The due time of the first timer, in ms; nil where there is none.
---@key due  zset  timer id scored by due ms
local function earliest()
  local first = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
  return tonumber(first[2])
end
