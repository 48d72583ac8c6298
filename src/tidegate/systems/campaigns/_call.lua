-- Call for hands: the process that has waited longest takes the call, and joins.
local function call_for_hands(keys, campaign)
  if redis.call('SADD', keys.called, campaign) == 1 then redis.call('LPUSH', keys.calls, campaign) end
end
