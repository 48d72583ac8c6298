-- Pause admissions: the caller is about to read the sessions from SQL and to install the room.
---@keyset keys
---@arg token     str     identifies the installer
---@arg fence     int     fencing number of the leader that installs; 0 if the caller does not lead
---@arg lasts_ms  int     after this time another process must install the room
---@arg now_ms    time
---@include numbers
-- Reply: {run of the server, last admission that it knows, 1 if the room was installed on this run,
--   1 if arrival numbers run low, admissions in progress}
--   | {run of the server} it does not have the room | {'replaced', ''} a later leader has taken the room over
-- Earlier leaders admit no visitors from here on.

if fence > 0 then
  if fence < tonumber(redis.call('HGET', keys.book, 'fence') or 0) then return {'replaced', ''} end
  redis.call('HSET', keys.book, 'fence', text(fence))
end
redis.call('HSET', keys.book, 'pause', token, 'paused_until_ms', text(now_ms + lasts_ms))
local room, run = read_room_with_rate(keys), this_run()
if not room then return {run} end
return {run, room.admissions, redis.call('HGET', keys.book, 'run') == run and 1 or 0, is_low(room) and 1 or 0,
  redis.call('ZCARD', keys.entering)}
