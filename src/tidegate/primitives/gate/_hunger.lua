-- Buckets of a pool whose jobs wait until a call of any bucket ends, longest first. A credential that nobody meters may
-- have a thousand buckets: whoever's call ends looks at those that stand here, and only while somebody is free.
---@key lanes  hash  H:pool -> the buckets
---@include capacity
local queues, idle = {}, {}

local function queue_in(pool)
  if not queues[pool] then
    local packed = redis.call('HGET', lanes, 'H:' .. pool)
    local queue = {line = packed and cmsgpack.unpack(packed) or {}, has = {}}
    for _, bucket in ipairs(queue.line) do queue.has[bucket] = true end
    queues[pool] = queue
  end
  return queues[pool]
end

local function hunger(pool, bucket)
  local queue = queue_in(pool)
  if queue.has[bucket] then return end
  queue.line[#queue.line + 1] = bucket
  queue.has[bucket], queue.is_new = true, true
end

-- Whether an unmetered credential of the pool can make a call, in whatever bucket. Within a script they only get fewer.
local function anybody_free(pool, now)
  if not idle[pool] then
    idle[pool] = {}
    read_ahead(credentials_of(pool))
    for _, credential in ipairs(credentials_of(pool)) do
      local state = account(credential)
      if state.unmetered then table.insert(idle[pool], state) end
    end
  end
  local states = idle[pool]
  while #states > 0 and calls_of(states[#states], now) == 0 do states[#states] = nil end
  return #states > 0
end

-- Open, with `open`, those that have stood longest, as long as somebody is free. Each stands at the end again if its jobs
-- still wait.
local function feed(pool, open, now)
  local queue = queue_in(pool)
  local last, fed = #queue.line, 0
  while fed < last and anybody_free(pool, now) do
    fed = fed + 1
    local bucket = queue.line[fed]
    queue.has[bucket] = nil
    open(pool, bucket, now)
  end
  if fed == 0 then return end
  local line = {}
  for n = fed + 1, #queue.line do line[#line + 1] = queue.line[n] end
  queue.line, queue.is_new = line, true
end

local function close_queues()
  for pool, queue in pairs(queues) do
    if queue.is_new and #queue.line > 0 then
      redis.call('HSET', lanes, 'H:' .. pool, cmsgpack.pack(queue.line))
    elseif queue.is_new then
      redis.call('HDEL', lanes, 'H:' .. pool)
    end
  end
end
