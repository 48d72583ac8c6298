-- Count one item of a subject, unless the subject has used up its allowance.
--
---@key subjects     zset  subject scored by the ms at which its allowance is complete again
---@key items        zset  item that was counted, scored by when it is forgotten
---@arg subject      str
---@arg item         str
---@arg burst        int   items at once
---@arg interval_ms  int   after so long there is one more
---@arg most         int   entries that are kept in each key; of more, those with the earliest times are removed
---@arg now_ms       time
-- Reply: {'granted'} | {'refused', ms until there is one again}
-- An item that was counted is granted again without being counted twice, so this may be repeated.

local whole_ms = burst * interval_ms

for _, key in ipairs({subjects, items}) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now_ms))
end
if redis.call('ZSCORE', items, item) then
  return {'granted'}
end

-- A time further away than an empty allowance takes to fill was written before the clock was set back.
local complete_at = math.min(tonumber(redis.call('ZSCORE', subjects, subject) or 0), now_ms + whole_ms)
local after = math.max(complete_at, now_ms) + interval_ms
if after - now_ms > whole_ms then
  return {'refused', after - now_ms - whole_ms}
end

local score = string.format('%.0f', after)
for key, member in pairs({[subjects] = subject, [items] = item}) do
  redis.call('ZADD', key, score, member)
  local surplus = redis.call('ZCARD', key) - most
  if surplus > 0 then
    redis.call('ZREMRANGEBYRANK', key, 0, surplus - 1)
  end
  redis.call('PEXPIRE', key, whole_ms)
end
return {'granted'}
