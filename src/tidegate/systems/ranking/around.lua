-- Where a member is in a window, and who is around it.
--
---@key scores     zset    place and member, scored
---@key places     hash    member -> place
---@key epoch      string  by whose calendar the copy is
---@arg calendar   str     by whose calendar it must be
---@arg member     str
---@arg neighbours int     so many before it, and so many behind
-- Reply: {'around', members in all, index of the first, {place and member, score, ...}}
--      | {'absent', members in all} | {'not_whole'}

if redis.call('GET', epoch) ~= calendar then return {'not_whole'} end
local place = redis.call('HGET', places, member)
local index = place and redis.call('ZREVRANK', scores, place .. member)
if not index then return {'absent', redis.call('ZCARD', scores)} end
local first = math.max(0, index - neighbours)
local some = redis.call('ZREVRANGE', scores, first, index + neighbours, 'WITHSCORES')
return {'around', redis.call('ZCARD', scores), first, some}
