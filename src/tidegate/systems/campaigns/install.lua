-- Make the campaign what SQL says: its rules, and where the server has lost it, its numbers and whom the door let in.
--
---@keyset keys
---@arg rules       packed  map: epoch, kind, state, stock ('' without a bound), total
---@arg opens_in_ms int     ms until the start, 0 where it has come
---@arg closes_in_ms int    ms until the end, 0 where it has come; -1: it has none
---@arg counters    packed  {issued, last number} as SQL knows them; empty: only the rules
---@arg known       packed  list of {user, number|key}: a part of those who have a row
---@arg forget_ms   int     how long after the end the door remembers whom it let in
---@arg is_last     int     1 with the last part: from here on the campaign is as it says
---@arg now_ms      time
-- Reply: 'installed' | 'newer' where a newer epoch is there | 'lost' where no counters are given, and nothing is there or
--        the door does not know whom it let in: that is not told of a campaign that has long been over
-- Where the campaign is there its counters stay: the server knows of entries that SQL does not know yet.
-- The book ends with the door's memory: thousands of campaigns that are over leave nothing behind.

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
