-- Run of the server. After a restart or a failover, the server may have forgotten its last writes.

local function this_run() return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') end

-- Whether the room was installed on this run. If not, SQL may have sessions that the server does not know.
local function is_installed_here(keys) return redis.call('HGET', keys.book, 'run') == this_run() end
