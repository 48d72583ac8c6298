-- The commands that the coalescer's scripts use, on a simulated clock. A key is forgotten when its time is over.

local data, expires, now, saved = {}, {}, 0, nil

local function live(key)
  local at = expires[key]
  if at and at <= now then
    data[key], expires[key] = nil, nil
  end
  return data[key]
end

-- Numbers become text as on the server: all their digits.
local function text(value)
  return type(value) == 'number' and string.format('%.17g', value) or value
end

local commands = {}

function commands.HGET(key, field)
  local hash = live(key)
  return hash and hash[field] or false
end

function commands.HMGET(key, ...)
  local hash, found = live(key) or {}, {}
  for n = 1, select('#', ...) do
    found[n] = hash[select(n, ...)] or false
  end
  return found
end

function commands.HSET(key, ...)
  local hash = live(key) or {}
  data[key] = hash
  for n = 1, select('#', ...), 2 do
    hash[select(n, ...)] = text((select(n + 1, ...)))
  end
end

function commands.HDEL(key, ...)
  local hash, gone = live(key) or {}, 0
  for n = 1, select('#', ...) do
    local field = select(n, ...)
    gone = gone + (hash[field] and 1 or 0)
    hash[field] = nil
  end
  return gone
end

function commands.GET(key)
  return live(key) or false
end

function commands.SET(key, value)
  data[key], expires[key] = text(value), nil
end

function commands.PEXPIRE(key, span_ms)
  expires[key] = now + tonumber(span_ms)
end

redis = { call = function(name, ...) return commands[name](...) end }

local function copied(all)
  local copy = {}
  for key, value in pairs(all) do
    copy[key] = type(value) == 'table' and copied(value) or value
  end
  return copy
end

local server = { scripts = {} }

function server.run(script, count, ...)
  KEYS, ARGV = {}, {}
  for n = 1, select('#', ...) do
    local given = select(n, ...)
    if n <= count then
      KEYS[n] = given
    else
      ARGV[n - count] = given
    end
  end
  local reply = script()
  if type(reply) == 'table' then
    return reply[1], reply[2]
  end
  return reply
end

server.call = redis.call
function server.set_time(now_ms) now = now_ms end
function server.flush() data, expires = {}, {} end
function server.save() saved = { data = copied(data), expires = copied(expires) } end
function server.restore()
  saved = saved or { data = {}, expires = {} }
  data, expires = copied(saved.data), copied(saved.expires)
end
function server.reset() data, expires, now, saved = {}, {}, 0, nil end

return server
