-- Put what members have in a day, a week and a month, in one step. What is told again, or late, changes nothing.
--
---@key day           zset    place and member, scored
---@key day_places    hash    member -> place
---@key week          zset
---@key week_places   hash
---@key month         zset
---@key month_places  hash
---@key epoch         string  by whose calendar the copy is
---@arg calendar      str     by whose calendar it must be
---@arg day_until     int     ms since the epoch: when the window is no longer kept
---@arg week_until    int
---@arg month_until   int
---@arg rows          packed  for each of the three: {member, place, score} of each
---@arg now_ms        time
---@include put
-- Reply: {members moved in the day, in the week, in the month, 1 | 0 where the copy is not whole}
-- What is by another calendar than the copy is not put: the two would never come apart again.

local present = redis.call('GET', epoch)
if present and present ~= calendar then return {0, 0, 0, 0} end
return {
  put_all(day, day_places, rows[1], day_until - now_ms),
  put_all(week, week_places, rows[2], week_until - now_ms),
  put_all(month, month_places, rows[3], month_until - now_ms),
  present and 1 or 0,
}
