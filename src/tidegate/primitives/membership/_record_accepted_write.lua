-- Record that the server accepts writes. A lease ends only after the server has accepted writes without a break.

-- Returns since when writes were accepted, each no more than `gap_ms` after the one before. With `was_refused` the series begins
-- now: the caller was refused since its last one. To be called before anything else is written.
local function record_accepted_write(accepted_writes, gap_ms, was_refused, now)
  local since, last = unpack(redis.call('HMGET', accepted_writes, 'since', 'last'))
  if was_refused or not last or now < tonumber(last) or now - tonumber(last) > gap_ms then since = now end
  redis.call('HSET', accepted_writes, 'since', since, 'last', now)
  return tonumber(since)
end
