-- Wake whoever waits on the doorbell. The token stays until it is taken, so a wake-up cannot be lost; one is enough.
---@key wake  list  at most one token
local function ring()
  if redis.call('LLEN', wake) == 0 then
    redis.call('RPUSH', wake, '1')
  end
end
