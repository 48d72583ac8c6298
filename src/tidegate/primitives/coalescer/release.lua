-- End the work on a subject: drop its lock, if it is still that of this version. The version stays, and so does what
-- was published.
--
---@key work     hash  version, published; and while locked: token, outcome, urgent, lasts_ms, until_ms
---@arg version  int
-- Reply: 1 (dropped) | 0 (another version's, or none)

if redis.call('HGET', work, 'version') ~= string.format('%.0f', version) then
  return 0
end
return math.min(1, redis.call('HDEL', work, 'until_ms', 'token', 'outcome', 'urgent', 'lasts_ms'))
