-- Grant nothing for a while: the upstream said so. A shorter pause does not cut a longer one.
--
---@keyset keys
---@arg plan     packed
---@arg pause_ms int
---@arg now_ms   time
---@include book
-- Reply: in how many ms permits are granted again

local book = open_book(keys, plan, now_ms)
book.paused_until = math.max(book.paused_until or 0, book.clock + pause_ms)
close_book(keys, book, plan.ttl_ms)
return book.paused_until - book.clock
