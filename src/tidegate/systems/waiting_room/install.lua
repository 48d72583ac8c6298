-- Write the state of the room according to SQL: its rules and sessions. No visitor is admitted before.
---@keyset keys
---@arg rules       packed  map: epoch, state, capacity, interval_ms, burst, abandon_ms, log_most, seed, line
---@arg opens_in_ms int     ms until the start, 0 after it; -1: no start is known
---@arg numbers     packed  {last arrival number that SQL had reserved before, last one that is reserved now}
---@arg admission   int     last admission in SQL
---@arg sessions    packed  list of {user, admission, ms left, 1 if a guest}: a part of the sessions
---@arg over        packed  list of {user, place}: a part of the visitors whose admission and end the server does not know
---@arg token       str     of the caller, with which it paused the room
---@arg paused_run  str     run of the server when the room was paused; the numbers are for this run
---@arg is_last     int     1 with the last part, which completes the installation
---@arg now_ms      time
---@include entry
---@include log_step
---@include run
---@include send_wakeup
-- Reply: 'installed'
--   | 'newer' the server has a newer epoch
--   | 'late' the pause is over, lost or another's, so visitors may have been admitted since and this state is outdated;
--   also while an admission is in progress, which must be completed or reverted first
-- Waiting visitors keep their places unless they were admitted from there since. Repeating the call changes nothing.

local known = redis.call('HMGET', keys.book, 'epoch', 'abandon_ms', 'opens_ms', 'admissions', 'pause', 'run', 'line')
if known[7] and known[7] ~= rules.line and known[5] == token then
  -- The data belongs to a deleted room of the same name; the process that deleted it died before it removed the keys.
  local paused_until_ms, fence = unpack(redis.call('HMGET', keys.book, 'paused_until_ms', 'fence'))
  redis.call('UNLINK', keys.book, keys.waiting, keys.entering, keys.entries, keys.active, keys.admissions, keys.guests,
    keys.seen, keys.chunks, keys.log, keys.moves)
  redis.call('HSET', keys.book, 'pause', token, 'paused_until_ms', paused_until_ms, 'fence', fence or '0')
  known = redis.call('HMGET', keys.book, 'epoch', 'abandon_ms', 'opens_ms', 'admissions', 'pause', 'run')
end
if known[1] and tonumber(known[1]) > rules.epoch then return 'newer' end
if known[5] ~= token or paused_run ~= this_run() then return 'late' end
local is_new_run = known[6] ~= paused_run
-- From the first part on, so that a visitor that joins with an old place is either asked about in SQL after this, or in
-- line and covered by the parts below.
if known[1] then redis.call('HSET', keys.book, 'sql_epoch', text(rules.epoch)) end
local admitted = {}
for _, session in ipairs(sessions) do
  local user, admission, left_ms, is_guest = unpack(session)
  local is_news = tonumber(redis.call('HGET', keys.admissions, user)) ~= admission
  if end_entry(keys, user, admission) or is_news then admitted[#admitted + 1] = {user, '', text(admission)} end
  redis.call('ZREM', keys.waiting, user)
  redis.call('ZADD', keys.active, now_ms + left_ms, user)
  if is_news then redis.call('HSET', keys.admissions, user, text(admission)) end
  redis.call(is_guest == 1 and 'SADD' or 'SREM', keys.guests, user)
end
log_step(keys, rules, 'admitted', admitted)
local dropped = {}
for _, each in ipairs(over) do
  local user, place = unpack(each)
  if tonumber(redis.call('ZSCORE', keys.waiting, user)) == place then
    redis.call('ZREM', keys.waiting, user)
    dropped[#dropped + 1] = {user, text(place)}
  end
end
log_step(keys, rules, 'dropped', dropped)
if is_last == 0 then return 'installed' end
if redis.call('ZCARD', keys.entering) > 0 then return 'late' end
for name, value in pairs(rules) do
  redis.call('HSET', keys.book, name, type(value) == 'number' and string.format('%.17g', value) or value)
end
redis.call('HSET', keys.book, 'reserved', text(numbers[2]))
if numbers[1] < numbers[2] then redis.call('HSET', keys.book, 'low', text((numbers[2] - numbers[1]) / 2)) end
if not known[1] then
  redis.call('HSET', keys.book, 'arrivals', text(numbers[1]), 'base', text(numbers[1] < 2 ^ 25 and 0 or numbers[1]),
    'sql_epoch', text(rules.epoch))
elseif is_new_run then
  -- The last numbers that were given may be forgotten, so they are skipped. Waiting visitors could not be heard.
  redis.call('HSET', keys.book, 'arrivals', text(numbers[1]), 'heard_from_s', text(math.floor(now_ms / 1000)))
end
if known[1] and tonumber(known[2]) ~= rules.abandon_ms then
  for _, chunk in ipairs(redis.call('ZRANGE', keys.chunks, 0, -1)) do redis.call('ZADD', keys.chunks, now_ms, chunk) end
end
-- A start that has passed stays: the seed may be known, and no place may be drawn with it any more.
local opens_ms = tonumber(known[3] or 0)
if opens_in_ms == 0 or (opens_ms > 0 and opens_ms <= now_ms) then
  opens_ms = 1
else
  opens_ms = opens_in_ms < 0 and 0 or now_ms + opens_in_ms
end
redis.call('HSET', keys.book, 'run', paused_run, 'opens_ms', text(opens_ms),
  'admissions', text(math.max(tonumber(known[4] or 0), admission)))
redis.call('HDEL', keys.book, 'pause', 'paused_until_ms')
notify_watchers(keys)
send_wakeup(keys.wake)
return 'installed'
