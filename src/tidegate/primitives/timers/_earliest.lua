-- The due time of the first timer, in ms; nil where there is none.
local function earliest(due)
  local first = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
  return tonumber(first[2])
end
