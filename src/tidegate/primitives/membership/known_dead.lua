-- Processes that were declared dead, until their messages are taken over.
--
---@key membership  zset  owner scored by the ms at which its lease ends
---@key dead      set   owners whose messages are to be taken over
---@arg limit     int
-- Reply: {owner, ...}, in no order
-- One that has joined again is alive, and is struck from the list.

local owners = {}
for _, owner in ipairs(redis.call('SRANDMEMBER', dead, limit)) do
  if redis.call('ZSCORE', membership, owner) then
    redis.call('SREM', dead, owner)
  else
    owners[#owners + 1] = owner
  end
end
return owners
