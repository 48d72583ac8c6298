-- The buckets for which jobs wait in the lines of one pool (`p:pool`, and `b:pool`) or one credential (`c:credential`).
---@key waiting  zset  line|class|turn|job
local function buckets_in_line(owner)
  local found, from = {}, '[' .. owner .. '|'
  while true do
    local place = redis.call('ZRANGE', waiting, from, '(' .. owner .. '}', 'BYLEX', 'LIMIT', 0, 1)[1]
    if not place then return found end
    local bucket = string.match(string.sub(place, #owner + 2), '^([^|]*)|')
    found[#found + 1] = bucket
    from = '[' .. owner .. '|' .. bucket .. '}'
  end
end
