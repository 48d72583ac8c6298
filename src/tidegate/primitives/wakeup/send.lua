-- Wake the waiting process, or the next one that waits.
--
---@key wake  list  at most one token
---@include send_wakeup
-- Reply: nothing
-- Sending again before the signal is taken changes nothing.

send_wakeup(wake)
