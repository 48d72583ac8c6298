-- Wake whoever waits at the doorbell, now or later.
--
---@key wake  list  at most one token
---@include ring
-- Reply: nothing
-- Ringing again before anybody came changes nothing.

ring()
