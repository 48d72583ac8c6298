-- The room as it was installed, and how many are inside.
---@key book      hash  the room's rules and counters
---@key entering  zset  user scored by when somebody else settles it, ms
---@key active    zset  user scored by the end of the session, ms
---@key guests    set   those of them who came in beside the capacity

-- nil where the server has lost the room, or never had it.
local function read_book()
  local found = redis.call('HMGET', book, 'epoch', 'state', 'opens_ms', 'capacity', 'interval_ms', 'burst', 'tat_ms',
    'abandon_ms', 'base', 'arrivals', 'reserved', 'admissions', 'not_before_ms', 'log_most', 'seed',
    'paused_until_ms')
  if not found[1] then return nil end
  local function number(n) return tonumber(found[n] or 0) end
  return {
    epoch = number(1), state = found[2], opens_ms = number(3), capacity = number(4), interval_ms = number(5),
    burst = number(6), tat_ms = number(7), abandon_ms = number(8), base = number(9), arrivals = number(10),
    reserved = number(11), admissions = number(12), not_before_ms = number(13), log_most = number(14),
    seed = found[15], paused_until_ms = number(16),
  }
end

-- Whom the capacity counts.
local function inside()
  return redis.call('ZCARD', entering) + redis.call('ZCARD', active) - redis.call('SCARD', guests)
end

-- Whole numbers as texts: Lua's own way has 14 digits.
local function text(number) return string.format('%.0f', number) end
