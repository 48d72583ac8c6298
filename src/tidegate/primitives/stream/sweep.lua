-- Look at one page of what is pending, and hand on what has been held too long.
--
---@key stream    stream  messages
---@key dead      stream  dead letters
---@arg group     str
---@arg after     str     the last id of the page before; empty at first
---@arg limit     int
---@arg idle_ms   int     how long is too long
---@arg most      int     deliveries after which a message is buried; 0: this one does not count
---@arg reason    str
---@arg now_ms    time
---@include pending
---@include redeliver
---@include waypoint
-- Reply: {given again, buried, the last id seen or '' at the end, ms until the first of the others is held too long}
-- Idle times are the server's own; `now_ms` only dates the dead letters. What nobody had in hand was not delivered.

local page = pending(stream, group, after == '' and '-' or '(' .. after, '+', limit)
local stale, stranded, soonest = {}, {}, idle_ms
for _, item in ipairs(page) do
  local id, idle = item[1], item[3]
  if idle >= idle_ms then
    local list = is_waypoint(item[2]) and stranded or stale
    list[#list + 1] = id
  else
    soonest = math.min(soonest, idle_ms - idle)
  end
end
local given, buried = redeliver(stream, dead, group, stale, {reason = reason, most = most > 0 and most or nil}, now_ms)
given = given + redeliver(stream, dead, group, stranded, {reason = reason}, now_ms)
return {given, buried, #page == limit and page[limit][1] or '', soonest}
