-- A process took calls and died before it answered them: let others take them.
--
---@key wakeups  list  campaigns that call
---@key taken  list  calls that this process took and has not answered
-- Reply: how many there were
-- A call moves in one step, so none is lost and none is made twice.

local given = 0
while redis.call('LMOVE', taken, wakeups, 'RIGHT', 'LEFT') do given = given + 1 end
return given
