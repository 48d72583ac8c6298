-- Store a copy of a subject, from a refresh or from SQL, unless a newer version is known.
--
---@key entry       hash    version, hash, updated_ms, checked_ms, missing_ms, upstream_id, failure, body
---@arg version     int
---@arg facts       packed  the other fields, by name, without the body; `failure` only if there is one
---@arg body        bytes   compressed; only for the mode `whole`
---@arg mode        str     whole | checked: the same body as before | missing: the upstream has no such subject
---@arg keep_ms     int
---@arg mark_ms     int     how long the version is remembered if no copy is kept
---@arg only_known  int     1: only if there is a copy already
-- Reply: 1 when it was stored, else 0
-- An entry with only a version is a mark: there is no copy, and a late copy with an older version is refused.

local known = tonumber(redis.call('HGET', entry, 'version') or -1)
if known > version then return 0 end

local function mark()
  redis.call('DEL', entry)
  redis.call('HSET', entry, 'version', string.format('%.0f', version))
  redis.call('PEXPIRE', entry, mark_ms)
  return 0
end

if only_known == 1 and redis.call('HEXISTS', entry, 'checked_ms') == 0 then return mark() end
if mode == 'checked'
  and (redis.call('HEXISTS', entry, 'body') == 0 or redis.call('HGET', entry, 'hash') ~= facts.hash) then
  -- The checked body has no copy here, because the process that wrote it to SQL failed before it copied it.
  return mark()
end
-- A newer version ends a failure. A row that was read before the failure does not.
if known < version then redis.call('HDEL', entry, 'failure') end
if mode == 'missing' then
  redis.call('HDEL', entry, 'body')
elseif mode == 'whole' then
  redis.call('HSET', entry, 'body', body)
end
for name, value in pairs(facts) do redis.call('HSET', entry, name, value) end
redis.call('HSET', entry, 'version', string.format('%.0f', version))
redis.call('PEXPIRE', entry, keep_ms)
return 1
