-- How many messages there are, and how many of them were delivered to somebody and are not done.
-- What is done is deleted in the same step, so whatever is not pending was not read by anybody.
local function backlog(keys, group)
  local found = redis.pcall('XPENDING', keys.stream, group)
  if found.err then
    -- No group, or no stream: nothing was delivered.
    if not string.find(found.err, 'NOGROUP', 1, true) then error(found.err) end
    return redis.call('XLEN', keys.stream), 0
  end
  return redis.call('XLEN', keys.stream), found[1]
end
