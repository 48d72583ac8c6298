-- How the stream stands, seen in one moment.
--
---@key stream  stream  messages
---@key dead    stream  dead letters
---@arg group   str
-- Reply: {messages, dead letters, {{consumer, pending, idle ms}, ...}}

local consumers = {}
local found = redis.pcall('XINFO', 'CONSUMERS', stream, group)
if not found.err then
  for n, facts in ipairs(found) do
    local named = {}
    for i = 1, #facts, 2 do named[facts[i]] = facts[i + 1] end
    consumers[n] = {named.name, named.pending, named.idle}
  end
end
return {redis.call('XLEN', stream), redis.call('XLEN', dead), consumers}
