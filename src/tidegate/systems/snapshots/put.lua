-- Copy what a refresh or a read of SQL found, unless something newer is known.
--
---@key entry       hash    version, hash, updated_ms, checked_ms, missing_ms, upstream_id, failure, body
---@arg version     int
---@arg facts       packed  the other fields, by name, without the body; `failure` only where one is known
---@arg body        bytes   compressed; only for the mode `whole`
---@arg mode        str     whole | checked: the same body as before | missing: the upstream has no such subject
---@arg keep_ms     int
---@arg mark_ms     int     how long the version is remembered where no copy is kept
---@arg only_known  int     1: keep no copy unless there is one
-- Reply: 1 when it was copied, else 0
-- An entry with nothing but a version is a mark: there is no copy, and an older one that comes late is refused.

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
  -- What was checked is a body that is not here: the process that wrote it did not get as far as this. SQL has it.
  return mark()
end
-- A failure is over when something newer is known; a row that was read before the failure says nothing about it.
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
