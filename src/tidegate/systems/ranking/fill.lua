-- Write a page of members to a window, or to the window that is being prepared.
---@key scores      zset    place and member, scored
---@key places      hash    member -> place
---@arg rows        packed  {member, place, score} of each
---@arg until_ms    int     ms since the epoch: when the window is no longer kept
---@arg at_most_ms  int     longest lifetime, so that an abandoned rebuild expires
---@arg now_ms      time
---@include put
-- Reply: number of members that changed

return put_all(scores, places, rows, math.min(until_ms - now_ms, at_most_ms))
