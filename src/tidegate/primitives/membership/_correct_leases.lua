-- Undo what a jump of the server's clock did to the leases.
--
-- A jump forward by more than `tolerance_ms` would end the leases of processes that had no time to renew them: each is
-- moved by as much as the clock. A lease that lasts longer than a new one was written before the clock was set back; a
-- process that died meanwhile would keep it for as long. In no case a lease lasts longer than a new one.
local function correct_leases(membership, expected_ms, tolerance_ms, ttl_ms, now)
  local latest, jump_ms = now + ttl_ms, expected_ms > 0 and now - expected_ms or 0
  if jump_ms > tolerance_ms then
    local found = redis.call('ZRANGE', membership, 0, -1, 'WITHSCORES')
    for n = 1, #found, 2 do redis.call('ZADD', membership, tonumber(found[n + 1]) + jump_ms, found[n]) end
  end
  for _, owner in ipairs(redis.call('ZRANGEBYSCORE', membership, '(' .. latest, '+inf')) do
    redis.call('ZADD', membership, latest, owner)
  end
end
