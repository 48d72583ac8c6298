-- Let nobody in for a while: somebody is about to read in SQL who is inside, and to install the room.
--
---@keyset keys
---@arg token     str     of whoever installs
---@arg fence     int     fencing number of the leader that installs; 0 where the caller does not lead
---@arg lasts_ms  int     if he has not done it by then, somebody else must
---@arg now_ms    time
---@include numbers
-- Reply: {which run of the server this is, the last admission that it knows of, 1 if the room was installed on this run,
--        1 if arrival numbers run low, how many admissions are in progress}
--        | {which run of the server this is} where there is no room | {'deposed', ''} a later leader keeps the room
-- From here on the leaders before this one admit nobody.

if fence > 0 then
  if fence < tonumber(redis.call('HGET', keys.book, 'fence') or 0) then return {'deposed', ''} end
  redis.call('HSET', keys.book, 'fence', text(fence))
end
redis.call('HSET', keys.book, 'pause', token, 'paused_until_ms', text(now_ms + lasts_ms))
local room, run = read_room_with_rate(keys), this_run()
if not room then return {run} end
return {run, room.admissions, redis.call('HGET', keys.book, 'run') == run and 1 or 0, is_low(room) and 1 or 0,
  redis.call('ZCARD', keys.entering)}
