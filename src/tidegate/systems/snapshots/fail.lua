-- Record a failed refresh in the copy of its subject, unless a request as new or newer has succeeded.
--
---@key entry    hash   version, hash, updated_ms, checked_ms, missing_ms, upstream_id, failure, body
---@arg version  int    of the failed request
---@arg failure  bytes
-- Reply: 1 when it was recorded, else 0

local known = tonumber(redis.call('HGET', entry, 'version') or -1)
-- Without a copy, readers get the failure from SQL.
if redis.call('HEXISTS', entry, 'checked_ms') == 0 or known >= version then return 0 end
redis.call('HSET', entry, 'failure', failure)
return 1
