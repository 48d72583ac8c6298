-- Make sure that the stream and its group exist; a new group gets every message that is in the stream.
--
---@key stream  stream  messages
---@arg group   str
-- Reply: 1 when it was made, 0 when it was there

local made = redis.pcall('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
if not made.err then return 1 end
if string.find(made.err, 'BUSYGROUP', 1, true) then return 0 end
return made
