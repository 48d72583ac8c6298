-- Return the first members of a window.
---@key scores    zset    place and member, scored
---@key epoch     string  calendar of the copy
---@arg calendar  str     calendar that the copy must have
---@arg most      int
-- Reply: {'top', number of members, {place and member, score, ...}} | {'not_whole'}

if redis.call('GET', epoch) ~= calendar then return {'not_whole'} end
return {'top', redis.call('ZCARD', scores), redis.call('ZREVRANGE', scores, 0, most - 1, 'WITHSCORES')}
