-- Let nobody in for a while: somebody is about to read in SQL who is inside, and to install the room.
--
---@key book        hash    the room's rules and counters
---@key waiting     zset    user scored by place
---@key entering    zset    user scored by when somebody else settles it, ms
---@key entries     hash    user -> admission|place|last sign of life
---@key active      zset    user scored by the end of the session, ms
---@key admissions  hash    user -> admission
---@key guests      set     those who came in beside the capacity
---@key seen        string  signs of life
---@key chunks      zset    when to look for the silent, ms
---@key log         stream  every step
---@key moves       stream  the last steps by which the line got shorter
---@key wake        list    at most one token
---@arg token     str     of whoever installs
---@arg lasts_ms  int     if he has not done it by then, somebody else must
---@arg now_ms    time
---@include run
-- Reply: {the last admission that the server knows of, 1 if the room was installed on this run of it, else 0}
--        | {} where there is no room, and so nobody is let in anyway

if redis.call('HEXISTS', book, 'epoch') == 0 then return {} end
redis.call('HSET', book, 'pause', token, 'paused_until_ms', string.format('%.0f', now_ms + lasts_ms))
return {tonumber(redis.call('HGET', book, 'admissions') or 0), is_installed_here() and 1 or 0}
