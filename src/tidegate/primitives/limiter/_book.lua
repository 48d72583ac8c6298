-- What each rule has left, at this moment of a clock that never goes back.
local NEARLY = 1e-6  -- units; a bucket that leaks in fractions must not owe a whole unit to rounding

-- Since when the server remembers grants. A server that lost its data grants nothing until `quiet_ms` have passed.
local function remembers_since(keys, quiet_ms, now_ms)
  local since = tonumber(redis.call('GET', keys.memory) or nil)
  if since and since <= now_ms then return since end
  redis.call('SET', keys.memory, string.format('%.0f', now_ms))
  return since and now_ms - quiet_ms or now_ms  -- a clock that was set back is no loss of data
end

local function read_book(keys, quiet_ms, now_ms)
  local flat, book = redis.call('HGETALL', keys.state), {}
  for i = 1, #flat, 2 do book[flat[i]] = tonumber(flat[i + 1]) end
  if not book.clock then
    redis.call('DEL', keys.counts, keys.leaving, keys.waiting)
    book.clock, book.paused_until = now_ms, remembers_since(keys, quiet_ms, now_ms) + quiet_ms
  end
  return book
end

local function drop_what_left(keys, book)
  for _, slot in ipairs(redis.call('ZRANGEBYSCORE', keys.leaving, '-inf', book.clock)) do
    local field = 'spent|' .. string.match(slot, '^(.*)|')
    book[field] = math.max(0, (book[field] or 0) - (tonumber(redis.call('HGET', keys.counts, slot)) or 0))
    redis.call('HDEL', keys.counts, slot)
  end
  redis.call('ZREMRANGEBYSCORE', keys.leaving, '-inf', book.clock)
end

local function drain(book, bucket, elapsed)
  local field = 'spent|' .. bucket.name
  book[field] = math.max(0, (book[field] or 0) - elapsed * bucket.per_ms)
end

-- The book as it stands now. When the server's clock was set back, time stands still until it has caught up.
local function open_book(keys, plan, now_ms)
  local book = read_book(keys, plan.quiet_ms, now_ms)
  local elapsed = math.max(0, now_ms - book.clock)
  book.clock = book.clock + elapsed
  drop_what_left(keys, book)
  for _, rule in ipairs(plan.rules) do
    if rule.per_ms then drain(book, rule, elapsed) end
  end
  drain(book, plan.floor, elapsed)
  return book
end

local function left_of(book, rule)
  return math.floor(rule.capacity - (book['spent|' .. rule.name] or 0) + NEARLY)
end

local function spend(keys, book, rule, units)
  local field = 'spent|' .. rule.name
  book[field] = (book[field] or 0) + units
  if rule.per_ms or units == 0 then return end
  local slot = math.floor(book.clock / rule.grain_ms)
  local member = rule.name .. '|' .. string.format('%.0f', slot)
  redis.call('HINCRBY', keys.counts, member, units)
  redis.call('ZADD', keys.leaving, (slot + 1) * rule.grain_ms + rule.span_ms, member)
end

local function close_book(keys, book, ttl_ms)
  local flat = {}
  for field, value in pairs(book) do
    flat[#flat + 1], flat[#flat + 2] = field, string.format('%.17g', value)
  end
  redis.call('HSET', keys.state, unpack(flat))
  local kept_ms = ttl_ms + math.max(0, math.ceil((book.paused_until or 0) - book.clock))
  for _, key in ipairs({keys.state, keys.counts, keys.leaving, keys.waiting}) do redis.call('PEXPIRE', key, kept_ms) end
end
