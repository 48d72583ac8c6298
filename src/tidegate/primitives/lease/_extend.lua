-- Let the lease end `ttl_ms` from now. Its key goes well after that: until_ms decides, expiry only tidies up.
---@key lease  hash  owner, fence, until_ms
local function extend(now_ms, ttl_ms)
  redis.call('HSET', lease, 'until_ms', now_ms + ttl_ms)
  redis.call('PEXPIRE', lease, ttl_ms + 3600000)
end
