-- Mark the copy as complete, unless the server lost its data while it was written.
---@key epoch     string  calendar of the copy
---@key building  string  was set before the first score was read
---@arg calendar  str
-- Reply: 1 | 0 the data was lost meanwhile

if redis.call('DEL', building) == 1 then redis.call('SET', epoch, calendar) end
return redis.call('GET', epoch) == calendar and 1 or 0
