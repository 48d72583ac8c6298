-- Keep what a refresh or a read of SQL found, unless something newer is there.
--
---@key entry       hash    version, hash, updated_ms, checked_ms, missing_ms, upstream_id, failure, body
---@arg version     int
---@arg facts       packed  the other fields, by name, without the body; `failure` only where one is known
---@arg body        bytes   compressed; only for the mode `whole`
---@arg mode        str     whole | checked: the same body as before | missing: the upstream has no such subject
---@arg keep_ms     int
---@arg only_known  int     1: leave it out unless it is there already
-- Reply: 1 when it was kept, else 0

local known = tonumber(redis.call('HGET', entry, 'version') or -1)
if known > version or (known < 0 and only_known == 1) then return 0 end
-- Of one version, the later check: who comes back to life does not undo what its heir has brought.
local checked_ms = tonumber(redis.call('HGET', entry, 'checked_ms') or '') or 0
if known == version and checked_ms > (tonumber(facts.checked_ms) or 0) then return 0 end
if mode == 'checked'
  and (redis.call('HEXISTS', entry, 'body') == 0 or redis.call('HGET', entry, 'hash') ~= facts.hash) then
  -- What was checked is a body that we do not have: whoever wrote it did not get as far as here. SQL has it.
  redis.call('DEL', entry)
  return 0
end
-- A failure is over when something newer is known; who read SQL before it failed says nothing about it.
if known < version or checked_ms < (tonumber(facts.checked_ms) or 0) then redis.call('HDEL', entry, 'failure') end
if mode == 'missing' then
  redis.call('HDEL', entry, 'body')
elseif mode == 'whole' then
  redis.call('HSET', entry, 'body', body)
end
for name, value in pairs(facts) do redis.call('HSET', entry, name, value) end
redis.call('HSET', entry, 'version', string.format('%.0f', version))
redis.call('PEXPIRE', entry, keep_ms)
return 1
