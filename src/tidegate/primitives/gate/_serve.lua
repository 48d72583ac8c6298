-- One credential lets jobs out of their lines into the stream, as far as its permits go.
---@key stream   stream  job; permit|credential|bucket|cost|turned; by: when its request must have left; payload, if any
---@key permits  hash    permit -> credential|bucket|cost|job; '#' -> the last one's number
---@include capacity
---@include barred
local MOST_AT_ONCE = 500  -- what one call lets out at most, so that no call holds the server for long
local let_out, granted, outside = 0, {}, {}

local function call_up(job, turn, record, credential, permit, turned, now)
  leave(record, turn)
  local terms = credential .. '|' .. record[BUCKET] .. '|' .. record[COST]
  granted[#granted + 1] = permit
  granted[#granted + 1] = terms .. '|' .. job
  outside[#outside + 1] = job
  outside[#outside + 1] = permit
  terms = permit .. '|' .. terms .. '|' .. turned
  local by = string.format('%.0f', now + SEND_WITHIN_MS)
  if record[PAYLOAD] == '' then
    redis.call('XADD', stream, '*', 'job', job, 'permit', terms, 'by', by)
  else
    redis.call('XADD', stream, '*', 'job', job, 'permit', terms, 'by', by, 'payload', record[PAYLOAD])
  end
end

-- The lines a credential serves, as one: the job with the lower class and turn goes first. Returns ranks and places.
local function queue_of(credential, pool, bucket, most)
  local ranks, places, by_rank = {}, {}, {}
  local lines = lines_of(credential, pool, bucket)
  for _, line in ipairs(lines) do
    for _, place in ipairs(heads(line, most)) do
      ranks[#ranks + 1] = rank_of(place, line)
      by_rank[ranks[#ranks]] = place
    end
  end
  if #lines > 1 then table.sort(ranks) end
  for n = #ranks, most + 1, -1 do ranks[n] = nil end
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
    call_up(one.job, one.turn, one.record, credential, string.format('%d', before + n), book.turned, now)
  end
  redis.call('ZREM', waiting, unpack(gone))
  spend(credential, book, #chosen, cost, now)
  state.used = before + #chosen
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
      local barred = barred_from(record)
      record[AFFINITY] = barred and '|' .. barred or ''
      stand(job_of(rank), record, pool_line(record), rank)
    end
  end
  if #places > 0 then redis.call('ZREM', waiting, unpack(places)) end
  take_places()
  return #places
end
