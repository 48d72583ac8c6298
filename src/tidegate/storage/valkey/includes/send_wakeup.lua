-- Wake the process that waits for the signal. The token stays until it is taken, so no wake-up is lost; one is enough.
local function send_wakeup(wake)
  if redis.call('LLEN', wake) == 0 then redis.call('RPUSH', wake, '1') end
end
