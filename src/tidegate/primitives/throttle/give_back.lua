-- Undo the counting of one item.
--
---@key subjects     zset  subject scored by the ms at which its allowance is complete again
---@key items        zset  item that was counted, scored by when it is forgotten
---@arg subject      str
---@arg item         str
---@arg interval_ms  int   what one item costs
-- Reply: 1 where it was counted; else 0, also when this is repeated

if redis.call('ZREM', items, item) == 0 then
  return 0
end
if redis.call('ZSCORE', subjects, subject) then
  redis.call('ZINCRBY', subjects, -interval_ms, subject)
end
return 1
