-- Give up dead letters for good; whoever sent them may enter again.
--
---@key book     hash    what the door knows
---@key stream   stream  messages
---@key dead     stream  dead letters
---@key entries  hash    user -> number|key
---@key hands    set     processes that serve it
---@key calls    list    campaigns that call
---@key called   set     the same, for a quick look
---@key busy     set     campaigns that may have messages or hands
---@arg letters  packed  list of {dead letter id, user or '', number|key or ''}
-- Reply: how many of them there were
-- The place of each is free in the same step, since only what is in a stream takes one.

local removed = 0
for _, letter in ipairs(letters) do
  if redis.call('XDEL', dead, letter[1]) == 1 then
    removed = removed + 1
    if redis.call('HGET', entries, letter[2]) == letter[3] then redis.call('HDEL', entries, letter[2]) end
  end
end
return removed
