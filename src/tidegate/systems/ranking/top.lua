-- The first members of a window.
--
---@key scores    zset    place and member, scored
---@key epoch     string  by whose calendar the copy is
---@arg calendar  str     by whose calendar it must be
---@arg most      int
-- Reply: {'top', members in all, {place and member, score, ...}} | {'not_whole'}

if redis.call('GET', epoch) ~= calendar then return {'not_whole'} end
return {'top', redis.call('ZCARD', scores), redis.call('ZREVRANGE', scores, 0, most - 1, 'WITHSCORES')}
