-- Keep what a refresh or a read of SQL found, unless something newer is there.
--
---@key entry       hash    version, hash, updated_ms, checked_ms, missing_ms, upstream_id, body
---@arg version     int
---@arg facts       packed  the other fields, by name, without the body
---@arg body        bytes   compressed; only for the mode `whole`
---@arg mode        str     whole | checked: the same body as before | missing: the upstream has no such subject
---@arg keep_ms     int
---@arg only_known  int     1: leave it out unless it is there already
-- Reply: 1 when it was kept, else 0

local known = tonumber(redis.call('HGET', entry, 'version') or -1)
if known > version or (known < 0 and only_known == 1) then return 0 end
if mode == 'checked' and redis.call('HEXISTS', entry, 'body') == 0 then
  -- What is known now has a body, and we do not have it: SQL does.
  redis.call('DEL', entry)
  return 0
end
if mode == 'missing' then
  redis.call('HDEL', entry, 'body')
elseif mode == 'whole' then
  redis.call('HSET', entry, 'body', body)
end
for name, value in pairs(facts) do redis.call('HSET', entry, name, value) end
redis.call('HSET', entry, 'version', string.format('%.0f', version))
redis.call('PEXPIRE', entry, keep_ms)
return 1
