-- What happened, for whoever follows the line, estimates a wait, or checks the rules afterwards.
---@include room
-- As many as are looked at to see how fast people come in, with those between them who give up one by one.
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

-- Something else moved of which those who watch the line want to know: a step in which nobody was let in or gave up.
local function notify_watchers(keys)
  redis.call('XADD', keys.moves, 'MAXLEN', '~', MOST_MOVES, '*', 'at_ms', 0, 'admitted', 0, 'gone', 0)
end
