-- Which run of the server this is. Started again, or taken over by another one, it may have forgotten its last moments.

local function this_run() return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') end

-- Whether the room was installed on this run: if not, SQL may know of people inside of whom the server does not.
local function is_installed_here(keys) return redis.call('HGET', keys.book, 'run') == this_run() end
