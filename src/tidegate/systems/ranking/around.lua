-- Return a member of a window with its neighbours.
---@key scores     zset    place and member, scored
---@key places     hash    member -> place
---@key epoch      string  calendar of the copy
---@arg calendar   str     calendar that the copy must have
---@arg member     str
---@arg neighbours int     members before and after it
-- Reply: {'around', number of members, index of the first, {place and member, score, ...}}
--   | {'absent', number of members} | {'not_whole'}

if redis.call('GET', epoch) ~= calendar then return {'not_whole'} end
local place = redis.call('HGET', places, member)
local index = place and redis.call('ZREVRANK', scores, place .. member)
if not index then return {'absent', redis.call('ZCARD', scores)} end
local first = math.max(0, index - neighbours)
local some = redis.call('ZREVRANGE', scores, first, index + neighbours, 'WITHSCORES')
return {'around', redis.call('ZCARD', scores), first, some}
