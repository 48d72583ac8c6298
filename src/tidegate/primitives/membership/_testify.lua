-- The server accepts writes: this is one. How long it has done so without a break is what the end of a lease needs.
---@key witness  hash  since, last: the first and the last write of an unbroken series of them, in ms

-- Returns since when writes were accepted, each no more than `gap_ms` after the one before. With `anew` the series begins
-- now: the caller was refused since its last one. To be called before anything else is written.
local function testify(gap_ms, anew, now)
  local since, last = unpack(redis.call('HMGET', witness, 'since', 'last'))
  if anew or not last or now < tonumber(last) or now - tonumber(last) > gap_ms then since = now end
  redis.call('HSET', witness, 'since', since, 'last', now)
  return tonumber(since)
end
