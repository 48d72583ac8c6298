-- Make dead letters messages again, as if they were new, and call for hands.
--
---@key book     hash    what the door knows
---@key stream   stream  messages
---@key dead     stream  dead letters
---@key entries  hash    user -> number|key
---@key hands    set     processes that serve it
---@key calls    list    campaigns that call
---@key called   set     the same, for a quick look
---@key busy     set     campaigns that may have messages or hands
---@arg campaign str
---@arg ids      packed  list of dead letter ids
---@arg now_ms   time
---@include call
---@include replay_letters
-- Reply: how many of them there were
-- The place of a letter stays taken.

local replayed = replay_letters(ids)
if replayed > 0 then
  redis.call('HSET', book, 'last_ms', string.format('%.0f', now_ms))
  redis.call('SADD', busy, campaign)
  if redis.call('SCARD', hands) == 0 then call_for_hands(campaign) end
end
return replayed
