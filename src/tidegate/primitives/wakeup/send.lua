-- Wake whoever waits at the wakeup, now or later.
--
---@key wake  list  at most one token
---@include send_wakeup
-- Reply: nothing
-- Ringing again before anybody came changes nothing.

send_wakeup(wake)
