-- XPENDING, for which a group that the server has lost holds nothing.
local function pending(stream, group, ...)
  local found = redis.pcall('XPENDING', stream, group, ...)
  if not found.err then return found end
  if string.find(found.err, 'NOGROUP', 1, true) then return {} end
  error(found.err)
end
