-- Write members of a day, a week and a month in one step. Repeated or late calls change nothing.
---@key day           zset    place and member, scored
---@key day_places    hash    member -> place
---@key week          zset
---@key week_places   hash
---@key month         zset
---@key month_places  hash
---@key epoch         string  calendar of the copy
---@arg calendar      str     calendar that the copy must have
---@arg day_until     int     ms since the epoch: when the window is no longer kept
---@arg week_until    int
---@arg month_until   int
---@arg rows          packed  for each of the three: {member, place, score} of each
---@arg now_ms        time
---@include put
-- Reply: {members that changed in the day, in the week, in the month, 1 | 0 the copy is incomplete}
-- Scores of another calendar are not written, since they could not be told apart later.

local present = redis.call('GET', epoch)
if present and present ~= calendar then return {0, 0, 0, 0} end
return {
  put_all(day, day_places, rows[1], day_until - now_ms),
  put_all(week, week_places, rows[2], week_until - now_ms),
  put_all(month, month_places, rows[3], month_until - now_ms),
  present and 1 or 0,
}
