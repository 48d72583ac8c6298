-- The log of a room, and the stream of moves that watchers and estimates read.
---@include room
-- Enough for an estimate, including steps in which visitors left one by one.
local MOST_MOVES = 512

-- `users` is a list of {user, place, admission}, each as far as it is known.
local function log_step(keys, room, what, users)
  if room.log_most == 0 or #users == 0 then return end
  redis.call('XADD', keys.log, 'MAXLEN', '~', room.log_most, '*', 'what', what, 'users', cmsgpack.pack(users),
    'inside', count_inside(keys), 'guests', redis.call('SCARD', keys.guests), 'capacity', room.capacity)
end

local function record_move(keys, now_ms, admitted, gone)
  if admitted + gone == 0 then return end
  redis.call('XADD', keys.moves, 'MAXLEN', '~', MOST_MOVES, '*', 'at_ms', now_ms, 'admitted', admitted, 'gone', gone)
end

-- Wake watchers after a step in which no visitor was admitted or left.
local function notify_watchers(keys)
  redis.call('XADD', keys.moves, 'MAXLEN', '~', MOST_MOVES, '*', 'at_ms', 0, 'admitted', 0, 'gone', 0)
end
