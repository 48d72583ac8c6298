-- Redeliver or dead-letter messages of one page of the pending list that were held too long.
--
---@key stream    stream  messages
---@key dead      stream  dead letters
---@arg group     str
---@arg after     str     the last id of the page before; empty at first
---@arg limit     int
---@arg idle_ms   int     longest time a message may be held
---@arg most      int     deliveries after which a message becomes a dead letter; 0: this one does not count
---@arg reason    str
---@arg now_ms    time
---@include pending
---@include redeliver
---@include waypoint
-- Reply: {redelivered, dead letters, last id of the page or '' at the end, ms until the next message is held too long}
-- Idle times are the server's own; `now_ms` only dates the dead letters. Messages that no worker had do not count as
-- delivered.

local page = pending(stream, group, after == '' and '-' or '(' .. after, '+', limit)
local stale, unassigned, soonest = {}, {}, idle_ms
for _, item in ipairs(page) do
  local id, idle = item[1], item[3]
  if idle >= idle_ms then
    local list = is_waypoint(item[2]) and unassigned or stale
    list[#list + 1] = id
  else
    soonest = math.min(soonest, idle_ms - idle)
  end
end
local redelivered, dead_lettered = redeliver(stream, dead, group, stale, {reason = reason, most = most > 0 and most or nil}, now_ms)
redelivered = redelivered + redeliver(stream, dead, group, unassigned, {reason = reason}, now_ms)
return {redelivered, dead_lettered, #page == limit and page[limit][1] or '', soonest}
