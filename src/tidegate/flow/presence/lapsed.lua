-- Whose lease has ended, and when the next one can.
--
---@key presence  zset  owner scored by the ms at which its lease ends
---@arg owner     str   who asks; never in the answer
---@arg limit     int
---@arg now_ms    time
-- Reply: {{owner, ...}, ms until the next other lease can end, 0 if there are more than `limit`, -1 if there is none}

local owners = {}
for _, other in ipairs(redis.call('ZRANGEBYSCORE', presence, '-inf', now_ms, 'LIMIT', 0, limit + 1)) do
  if other ~= owner then owners[#owners + 1] = other end
end
if #owners > limit then
  owners[#owners] = nil
  return {owners, 0}
end
local alive = redis.call('ZRANGEBYSCORE', presence, '(' .. now_ms, '+inf', 'WITHSCORES', 'LIMIT', 0, 2)
local first_ms = tonumber(alive[alive[1] == owner and 4 or 2])
return {owners, first_ms and first_ms - now_ms or -1}
