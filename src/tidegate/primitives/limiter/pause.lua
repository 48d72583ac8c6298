-- Grant nothing for a while: the upstream said so. A shorter pause does not cut a longer one.
--
---@key state    hash
---@key counts   hash
---@key leaving  zset
---@key waiting  hash
---@key memory   string
---@arg plan     packed
---@arg pause_ms int
---@arg now_ms   time
---@include book
-- Reply: in how many ms permits are granted again

local book = open_book(plan, now_ms)
book.paused_until = math.max(book.paused_until or 0, book.clock + pause_ms)
close_book(book, plan.ttl_ms)
return book.paused_until - book.clock
