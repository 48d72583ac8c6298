-- Return the number of messages, and how many of them are delivered and not settled.
-- Settled messages are deleted in the same step, so messages that are not pending are unread.
local function backlog(keys, group)
  local found = redis.pcall('XPENDING', keys.stream, group)
  if found.err then
    -- No group, or no stream: nothing was delivered.
    if not string.find(found.err, 'NOGROUP', 1, true) then error(found.err) end
    return redis.call('XLEN', keys.stream), 0
  end
  return redis.call('XLEN', keys.stream), found[1]
end
