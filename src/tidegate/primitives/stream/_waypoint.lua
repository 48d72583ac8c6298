-- Messages on their way to a worker through another queue are pending for the name `onward` or, while they are being
-- sent, for a sender `owner/onward`. No worker has them.
local WAYPOINT = 'onward'
local function is_waypoint(consumer)
  return consumer == WAYPOINT or string.sub(consumer, -#WAYPOINT - 1) == '/' .. WAYPOINT
end
