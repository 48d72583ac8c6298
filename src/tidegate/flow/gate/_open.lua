-- Let jobs out of their lines into the stream, as far as permits go.
---@key stream   stream  job; permit|credential|bucket|cost|turned; payload, if there is one
---@key permits  hash    permit -> credential|bucket|cost|job; '#' -> the last one's number
---@include capacity
---@include lines
---@include plan
local MOST_AT_ONCE = 500  -- what one call lets out at most, so that no call holds the server for long
local let_out, doors, woken, granted, outside = 0, {}, {}, {}, {}

local function call_up(job, turn, record, credential, permit, turned)
  leave(record, turn)
  local terms = credential .. '|' .. record[BUCKET] .. '|' .. record[COST]
  granted[#granted + 1] = permit
  granted[#granted + 1] = terms .. '|' .. job
  outside[#outside + 1] = job
  outside[#outside + 1] = permit
  terms = permit .. '|' .. terms .. '|' .. turned
  if record[PAYLOAD] == '' then
    redis.call('XADD', stream, '*', 'job', job, 'permit', terms)
  else
    redis.call('XADD', stream, '*', 'job', job, 'permit', terms, 'payload', record[PAYLOAD])
  end
end

-- The two lines a credential serves, as one: whoever has the lower class and turn goes first. Returns ranks and places.
local function queue_of(credential, pool, bucket, most)
  local line = 'p:' .. pool .. '|' .. bucket
  local places, ranks, own = heads(line, most), {}, {}
  for n, place in ipairs(places) do ranks[n] = rank_of(place, line) end
  if account(credential).bound > 0 then
    line = 'c:' .. credential .. '|' .. bucket
    own = heads(line, most)
  end
  if #own == 0 then return ranks, places end
  local by_rank = {}
  for n, rank in ipairs(ranks) do by_rank[rank] = places[n] end
  for _, place in ipairs(own) do
    ranks[#ranks + 1] = rank_of(place, line)
    by_rank[ranks[#ranks]] = place
  end
  table.sort(ranks)
  for n = #ranks, most + 1, -1 do ranks[n] = nil end
  places = {}
  for n, rank in ipairs(ranks) do places[n] = by_rank[rank] end
  return ranks, places
end

-- Those at the front that the units pay for, as {job, turn, place, record}; what they cost; when there may be more for
-- the next one. A place whose record is gone is nobody's, and is taken away.
local function affordable(ranks, places, units, state, book, now)
  local names, chosen, cost = {}, {}, 0
  for n, rank in ipairs(ranks) do names[n] = job_of(rank) end
  local full = book.limit and math.max(1, book.limit - floor_of(state, book.limit)) or math.huge
  for n, packed in ipairs(redis.call('HMGET', inside, unpack(names))) do
    if packed and is_record(packed) then
      local record = cmsgpack.unpack(packed)
      record[COST] = math.min(record[COST], full)  -- nothing costs more than a whole window, or it waits for ever
      if cost + record[COST] > units then return chosen, cost, opens_at(state, book, now) end
      cost = cost + record[COST]
      chosen[#chosen + 1] = {job = names[n], turn = turn_of(ranks[n]), place = places[n], record = record}
    else
      redis.call('ZREM', waiting, places[n])
    end
  end
  return chosen, cost, nil
end

local function serve(credential, calls, units, pool, bucket, now)
  local ranks, places = queue_of(credential, pool, bucket, math.min(calls, MOST_AT_ONCE - let_out))
  if #ranks == 0 then return nil end
  local book, state = bucket_of(credential, bucket), account(credential)
  local chosen, cost, again = affordable(ranks, places, units, state, book, now)
  if #chosen == 0 then return again end
  local called, gone = {}, {}
  for n, one in ipairs(chosen) do called[n], gone[n] = one.record, one.place end
  load_lanes(called)
  local before = redis.call('HINCRBY', permits, '#', #chosen) - #chosen
  for n, one in ipairs(chosen) do
    call_up(one.job, one.turn, one.record, credential, string.format('%d', before + n), book.turned)
  end
  redis.call('ZREM', waiting, unpack(gone))
  spend(state, book, #chosen, cost, now)
  let_out = let_out + #chosen
  return again
end

-- Jobs that wanted this credential join the pool's line, at the rank they had.
local function abandon(credential, pool, bucket)
  local line = 'c:' .. credential .. '|' .. bucket
  local places = heads(line, MOST_AT_ONCE)
  for _, place in ipairs(places) do
    local rank = rank_of(place, line)
    local packed = redis.call('HGET', inside, job_of(rank))
    if packed and is_record(packed) then
      local record = cmsgpack.unpack(packed)
      unbind(record)
      record[AFFINITY] = ''
      stand(job_of(rank), record, 'p:' .. pool .. '|' .. bucket, rank)
    end
  end
  if #places > 0 then redis.call('ZREM', waiting, unpack(places)) end
  take_places()
  return #places
end

local function sooner(a, b)
  return a and b and math.min(a, b) or a or b
end

-- A job leaves the credential it wanted only where that one is away for long and another can serve now.
local function release_bound(away, pool, bucket, now)
  for _, one in ipairs(away) do
    local state = account(one.credential)
    local is_long = state.retired or (one.again and one.again - now > state.patience_ms)
    if state.bound > 0 and is_long then abandon(one.credential, pool, bucket) end
  end
end

local function anybody_waits(credentials, pool, bucket)
  if heads('p:' .. pool .. '|' .. bucket, 1)[1] then return true end
  for _, credential in ipairs(credentials) do
    if account(credential).bound > 0 and heads('c:' .. credential .. '|' .. bucket, 1)[1] then return true end
  end
  return false
end

local function open(pool, bucket, now)
  local credentials, able, away, again = credentials_of(pool), {}, {}, nil
  if not anybody_waits(credentials, pool, bucket) then return end
  for _, credential in ipairs(credentials) do
    local calls, units, at = capacity(credential, bucket, now)
    local list = calls > 0 and able or away
    list[#list + 1] = {credential = credential, calls = calls, units = units, again = at}
  end
  if #able > 0 then release_bound(away, pool, bucket, now) end
  table.sort(able, function(a, b) return a.units > b.units end)
  for _, one in ipairs(able) do
    again = sooner(again, serve(one.credential, one.calls, one.units, pool, bucket, now))
  end
  if not anybody_waits(credentials, pool, bucket) then return end
  for _, credential in ipairs(credentials) do  -- what was able may be exhausted by now
    local _, _, at = capacity(credential, bucket, now)
    again = sooner(again, at)
  end
  if let_out >= MOST_AT_ONCE then again = now end
  if again then plan('o|' .. pool .. '|' .. bucket, again) end
end

local function want_open(pool, bucket)
  doors[pool .. '|' .. bucket] = {pool, bucket}
end

-- Calls at once are counted for all buckets together, so one that ends may make room in any.
local function want_open_all(credential)
  if woken[credential] then return end
  woken[credential] = true
  local state = account(credential)
  for _, bucket in ipairs(state.buckets) do want_open(state.pool, bucket) end
end

-- Write down everything; to be called once, at the end of a script.
local function finish(now)
  take_places()
  for _, door in pairs(doors) do open(door[1], door[2], now) end
  if let_out > 0 then
    redis.call('HSET', permits, unpack(granted))
    redis.call('HSET', inside, unpack(outside))
  end
  close_lanes()
  close_ledger()
end
