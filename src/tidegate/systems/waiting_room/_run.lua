-- Which run of the server this is. Started again, or taken over by another one, it may have forgotten its last moments.
---@key book  hash  the room's rules and counters

local function this_run() return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') end

-- Whether the room was installed on this run: if not, SQL may know of people inside of whom the server does not.
local function is_installed_here() return redis.call('HGET', book, 'run') == this_run() end
