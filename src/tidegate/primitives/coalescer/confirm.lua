-- The event of this version was published: events of older versions are obsolete from now on.
--
---@key work     hash  version, published; and while locked: token, outcome, urgent, lasts_ms, until_ms
---@arg version  int
-- Reply: 1 (so it is noted) | 0 (as new a one was before, or the server lost what it knew of this one)
-- `published` never goes back, and is never higher than `version`: what is given next is never obsolete.

local newest, published = unpack(redis.call('HMGET', work, 'version', 'published'))
if not newest or tonumber(newest) < version or tonumber(published or 0) >= version then
  return 0
end
redis.call('HSET', work, 'published', string.format('%.0f', version))
return 1
