-- Move messages from one consumer to another, or to the same one. Their idle time restarts.
--
---@key stream  stream  messages
---@arg group   str
---@arg giver   str
---@arg taker   str
---@arg ids     packed  list of message ids
---@arg counts  int     1: the ticket was sent again
---@include pending
-- Reply: the ids of those that were the giver's

local theirs = {}
for _, id in ipairs(ids) do
  if #pending(stream, group, id, id, 1, giver) == 1 then theirs[#theirs + 1] = id end
end
if #theirs == 0 then return theirs end
local command = {'XCLAIM', stream, group, taker, 0, unpack(theirs)}
if counts == 0 then command[#command + 1] = 'JUSTID' end
redis.call(unpack(command))
return theirs
