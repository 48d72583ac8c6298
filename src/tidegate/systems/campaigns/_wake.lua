-- Wake one process for a campaign, unless a wake-up is pending. The process that has waited longest takes it.
local function wake_process(keys, campaign)
  if redis.call('SADD', keys.woken, campaign) == 1 then redis.call('LPUSH', keys.wakeups, campaign) end
end
