-- Return the wake-ups that a dead process took and did not handle.
---@key wakeups  list  campaigns that need a process
---@key taken  list  wake-ups that this process took and has not handled
-- Reply: how many there were
-- A wake-up moves in one step, so none is lost or duplicated.

local given = 0
while redis.call('LMOVE', taken, wakeups, 'RIGHT', 'LEFT') do given = given + 1 end
return given
