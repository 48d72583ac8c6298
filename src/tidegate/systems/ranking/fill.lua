-- Put what members have in one window, page by page: in the window itself, or in the one that is made aside.
--
---@key scores      zset    place and member, scored
---@key places      hash    member -> place
---@arg rows        packed  {member, place, score} of each
---@arg until_ms    int     ms since the epoch: when the window is no longer kept
---@arg at_most_ms  int     for how long it lives at most; what is made aside and then forgotten must go
---@arg now_ms      time
---@include put
-- Reply: members that were moved

return put_all(scores, places, rows, math.min(until_ms - now_ms, at_most_ms))
