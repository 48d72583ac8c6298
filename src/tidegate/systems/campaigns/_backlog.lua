-- How many messages there are, and how many of them were delivered to somebody and are not done.
-- What is done is deleted in the same step, so whatever is not pending was not read by anybody.
---@key stream  stream  messages
local function backlog(group)
  local found = redis.pcall('XPENDING', stream, group)
  if found.err then
    -- No group, or no stream: nothing was delivered.
    if not string.find(found.err, 'NOGROUP', 1, true) then error(found.err) end
    return redis.call('XLEN', stream), 0
  end
  return redis.call('XLEN', stream), found[1]
end
