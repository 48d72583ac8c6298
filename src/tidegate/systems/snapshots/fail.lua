-- Note that a refresh failed, beside what is kept of its subject; not where one as new, or newer, has succeeded.
--
---@key entry    hash   version, hash, updated_ms, checked_ms, missing_ms, upstream_id, failure, body
---@arg version  int    of the call that failed
---@arg failure  bytes
-- Reply: 1 when it was noted, else 0

local known = tonumber(redis.call('HGET', entry, 'version') or -1)
-- Where there is no copy, SQL is asked, and tells of the failure too.
if redis.call('HEXISTS', entry, 'checked_ms') == 0 or known >= version then return 0 end
redis.call('HSET', entry, 'failure', failure)
return 1
