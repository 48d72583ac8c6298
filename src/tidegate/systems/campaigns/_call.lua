-- Call for hands: the process that has waited longest takes the call, and joins.
---@key calls   list  campaigns that call, the one that calls longest at the right
---@key called  set   those of which a call is under way
local function call_for_hands(campaign)
  if redis.call('SADD', called, campaign) == 1 then redis.call('LPUSH', calls, campaign) end
end
