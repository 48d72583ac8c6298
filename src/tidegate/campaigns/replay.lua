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
-- Reply: how many of them there were
-- A letter leaves in the step in which its message enters, so it is replayed once, and its place stays taken.

local replayed = 0
for _, id in ipairs(ids) do
  local letter = redis.call('XRANGE', dead, id, id)[1]
  if letter then
    local fields = {}
    for n = 1, #letter[2], 2 do
      if string.sub(letter[2][n], 1, 5) ~= 'dead.' then
        fields[#fields + 1] = letter[2][n]
        fields[#fields + 1] = letter[2][n + 1]
      end
    end
    redis.call('XADD', stream, '*', unpack(fields))
    redis.call('XDEL', dead, id)
    replayed = replayed + 1
  end
end
if replayed > 0 then
  redis.call('HSET', book, 'last_ms', string.format('%.0f', now_ms))
  redis.call('SADD', busy, campaign)
  if redis.call('SCARD', hands) == 0 then call_for_hands(campaign) end
end
return replayed
