-- Write the rules of the campaign according to SQL and, if the server lost it, its counters and users.
---@keyset keys
---@arg rules       packed  map: epoch, kind, state, stock ('' if unlimited), total
---@arg opens_in_ms int     ms until the start, 0 after it
---@arg closes_in_ms int    ms until the end, 0 after it; -1: no end
---@arg counters    packed  {issued, last number} according to SQL; empty: only the rules
---@arg known       packed  list of {user, number|key}: a part of the users with issued entries
---@arg forget_ms   int     how long after the end the users are remembered
---@arg is_last     int     1 with the last part, which completes the installation
---@arg now_ms      time
-- Reply: 'installed' | 'newer' the server has a newer epoch
--   | 'lost' no counters are given, and the campaign is absent or has no users; campaigns that ended long ago have none
-- An existing campaign keeps its counters, since the server has entries that SQL does not have yet.
-- The campaign expires with its users, so ended campaigns leave no keys behind.

local found = redis.call('HMGET', keys.book, 'epoch', 'issued')
local there, issued = found[1], tonumber(found[2] or 0)
if there and tonumber(there) > rules.epoch then return 'newer' end
local is_forgotten = issued > 0 and redis.call('EXISTS', keys.entries) == 0
if #counters == 0 and (not there or is_forgotten) then return 'lost' end
for _, one in ipairs(known) do redis.call('HSETNX', keys.entries, one[1], one[2]) end
if is_last == 0 then return 'installed' end
local closes_ms = closes_in_ms >= 0 and now_ms + closes_in_ms or nil
local function text(number) return number and string.format('%.0f', number) or '' end
redis.call('HSET', keys.book, 'epoch', text(rules.epoch), 'kind', rules.kind, 'state', rules.state,
  'stock', rules.stock == '' and '' or text(rules.stock), 'total', text(rules.total),
  'opens_ms', text(now_ms + opens_in_ms), 'closes_ms', text(closes_ms))
if not there then redis.call('HSET', keys.book, 'issued', text(counters[1]), 'next', text(counters[2])) end
if rules.state == 'stopped' then closes_ms = math.min(closes_ms or now_ms, now_ms) end
for _, key in ipairs({keys.book, keys.entries}) do
  if closes_ms then
    redis.call('PEXPIRE', key, text(closes_ms - now_ms + forget_ms))
  else
    redis.call('PERSIST', key)
  end
end
return 'installed'
