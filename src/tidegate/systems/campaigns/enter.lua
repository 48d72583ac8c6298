-- Answer attempts to enter a campaign, each as if it came alone, in this order.
---@keyset keys
---@arg campaign  str
---@arg attempts  packed  list of {user, key, the rest of the message's JSON}
---@arg max_len   int     largest number of undecided entries
---@arg forget_ms int     how long after the end the users are remembered
---@arg now_ms    time
---@include wake
-- Reply: {'answered', ms until the start | -1, a letter per attempt, the number of each | 0}
--   | {'unknown'} the campaign must be installed. Letters: A accepted, D duplicate, S sold out, N not open, B busy.
-- The same user with the same key is accepted again with the same number, and is added to the stream once.

local found = redis.call('HMGET', keys.book, 'state', 'opens_ms', 'closes_ms', 'stock', 'issued', 'next', 'epoch', 'sold_out')
local state, opens_ms, closes_ms = found[1], tonumber(found[2]), tonumber(found[3])
if not state then return {'unknown'} end
local stock, issued, next_number = tonumber(found[4]), tonumber(found[5] or 0), tonumber(found[6] or 0)
local head = string.format(',"epoch":%s,"at_ms":%.0f,', found[7], now_ms)

local is_open = state == 'open' and now_ms >= opens_ms and (not closes_ms or now_ms < closes_ms)
local in_line = redis.call('XLEN', keys.stream)
-- Issued entries, undecided entries and dead letters use the stock; others free their share by leaving the stream.
local places = (stock or math.huge) - issued - in_line - redis.call('XLEN', keys.dead)
-- SQL has issued all of this stock, although the counter is lower: the server lost its last writes.
if found[8] and found[8] == found[4] then places = 0 end
local room = max_len - in_line

local users = {}
for n, attempt in ipairs(attempts) do users[n] = attempt[1] end
local memories = redis.call('HMGET', keys.entries, unpack(users))

local letters, numbers, fresh, remembered = {}, {}, {}, {}
for n, attempt in ipairs(attempts) do
  local user, key = attempt[1], attempt[2]
  local known = fresh[user] or memories[n]
  local letter, number = 'N', 0
  if known then
    local bar = string.find(known, '|', 1, true)
    letter, number = string.sub(known, bar + 1) == key and 'A' or 'D', tonumber(string.sub(known, 1, bar - 1))
  elseif not is_open then
    letter = 'N'
  elseif places <= 0 then
    letter = 'S'
  elseif room <= 0 then
    letter = 'B'
  else
    places, room, next_number = places - 1, room - 1, next_number + 1
    letter, number = 'A', next_number
    local text = string.format('%.0f', number)
    redis.call('XADD', keys.stream, '*', 'payload', '{"number":' .. text .. head .. attempt[3])
    fresh[user] = text .. '|' .. key
    remembered[#remembered + 1] = user
    remembered[#remembered + 1] = fresh[user]
  end
  letters[n], numbers[n] = letter, number
end

if #remembered > 0 then
  redis.call('HSET', keys.entries, unpack(remembered))
  if closes_ms and redis.call('HLEN', keys.entries) == #remembered / 2 then
    redis.call('PEXPIRE', keys.entries, string.format('%.0f', closes_ms - now_ms + forget_ms))
  end
  redis.call('HSET', keys.book, 'next', string.format('%.0f', next_number), 'last_ms', string.format('%.0f', now_ms))
  if in_line == 0 then redis.call('SADD', keys.busy, campaign) end
  if redis.call('SCARD', keys.processes) == 0 then wake_process(keys, campaign) end
end
local opens_in_ms = state == 'open' and opens_ms > now_ms and opens_ms - now_ms or -1
return {'answered', opens_in_ms, table.concat(letters), numbers}
