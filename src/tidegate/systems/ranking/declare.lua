-- Say that everything is here that SQL had, unless the server lost its data while it was put.
--
---@key epoch     string  by whose calendar the copy is
---@key building  string  was set before the first of it was read
---@arg calendar  str
-- Reply: 1 | 0 where it was lost meanwhile

if redis.call('DEL', building) == 1 then redis.call('SET', epoch, calendar) end
return redis.call('GET', epoch) == calendar and 1 or 0
