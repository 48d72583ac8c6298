-- Messages that reach their workers by another queue: until one takes them they stand in the name `onward`, or, while
-- they are being sent, in that of a sender, `owner/onward`. There they are in nobody's hands.
local WAYPOINT = 'onward'
local function is_waypoint(consumer)
  return consumer == WAYPOINT or string.sub(consumer, -#WAYPOINT - 1) == '/' .. WAYPOINT
end
