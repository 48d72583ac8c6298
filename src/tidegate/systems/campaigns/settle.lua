-- Acknowledge and delete messages that are decided in SQL, and update the counters.
---@keyset keys
---@arg campaign str
---@arg group    str
---@arg settled  packed  list of {message id, verdict, user, number|key}
---@arg sold_out int     the stock, if SQL has issued all of it; else -1
---@arg backlog_limit    int     wake another process if more messages than this are left
---@arg pause_ms int     least interval between two such wake-ups
---@arg now_ms   time
---@include wake
-- Reply: {how many messages were settled by this call, messages left}
-- Only messages that are acknowledged by this call count. A message that was delivered to another consumer has another
-- id,
-- so a late or repeated call changes nothing. The counters change in the step in which a message leaves the stream.

local function acknowledge(one)
  if redis.call('XACK', keys.stream, group, one[1]) == 0 then return false end
  redis.call('XDEL', keys.stream, one[1])
  return true
end

local done, issued = 0, 0
for _, one in ipairs(settled) do
  if acknowledge(one) then
    done = done + 1
    if one[2] == 'issued' then
      issued = issued + 1
    elseif one[2] == 'known' then
      redis.call('HSET', keys.entries, one[3], one[4])
    elseif redis.call('HGET', keys.entries, one[3]) == one[4] then
      redis.call('HDEL', keys.entries, one[3])
    end
  end
end
local left = redis.call('XLEN', keys.stream)
local known = redis.call('HMGET', keys.book, 'issued', 'asked_ms')
if not known[1] then return {done, left} end
if issued > 0 then redis.call('HINCRBY', keys.book, 'issued', issued) end
-- SQL overrides the counters, since the server may have lost its last second. Another stock voids this.
if sold_out >= 0 then
  redis.call('HSET', keys.book, 'sold_out', string.format('%.0f', sold_out))
  -- Issued, except for what is committed and not settled, which is still in a stream: matters if the stock grows.
  local least = sold_out - left - redis.call('XLEN', keys.dead)
  if least > tonumber(known[1]) + issued then redis.call('HSET', keys.book, 'issued', string.format('%.0f', least)) end
end
if left > backlog_limit and now_ms - tonumber(known[2] or 0) >= pause_ms then
  redis.call('HSET', keys.book, 'asked_ms', string.format('%.0f', now_ms))
  wake_process(keys, campaign)
end
return {done, left}
