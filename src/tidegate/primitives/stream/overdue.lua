-- One page of the messages that are pending for one consumer, filtered by the time since their delivery.
--
---@key stream    stream  messages
---@arg group     str
---@arg consumer  str
---@arg after     str     the last id of the page before; empty at first
---@arg limit     int
---@arg idle_ms   int     time after which a message is overdue
---@include pending
-- Reply: {{{id, times it was sent}, ...}, last id of the page or '' at the end, ms until the next message is overdue}

local page = pending(stream, group, after == '' and '-' or '(' .. after, '+', limit, consumer)
local overdue, soonest = {}, idle_ms
for _, item in ipairs(page) do
  local id, idle, sent = item[1], item[3], item[4]
  if idle >= idle_ms then
    overdue[#overdue + 1] = {id, sent}
  else
    soonest = math.min(soonest, idle_ms - idle)
  end
end
return {overdue, #page == limit and page[limit][1] or '', soonest}
