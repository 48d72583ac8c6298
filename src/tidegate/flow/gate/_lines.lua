-- The line: every waiting job of every pool in one sorted set, all scores 0, ordered by `line|class|turn|job`.
--
-- A line is `p:pool|bucket`, or `c:credential|bucket` for jobs that keep the credential they had. Turns are counted per
-- pool, bucket and class: a job's turn is one more than the larger of the pool's present turn and its run's last one, so
-- a run with 100,000 jobs and a run with one take turns. A run's lane goes when its last job leaves the line.
--
-- A job's record: {pool, bucket, class, run, cost, affinity, payload, place}; place is its member of `waiting`.
---@key waiting  zset  line|class|turn|job
---@key lanes    hash  T:pool|bucket|class -> {present turn}; R:pool|bucket|class|run -> {last turn, jobs}
---@key inside   hash  job -> its record while it waits, its permit while it is out
---@include ledger
local lane_cache, arrivals, records = {}, {}, {}

local function lane(field)
  local known = lane_cache[field]
  if not known then
    local packed = redis.call('HGET', lanes, field)
    known = packed and cmsgpack.unpack(packed) or {0, 0}
    lane_cache[field] = known
  end
  return known
end

local function lanes_of(record)
  local base = record[1] .. '|' .. record[2] .. '|' .. record[3]
  return lane('T:' .. base), lane('R:' .. base .. '|' .. record[4])
end

local function is_record(value)
  return string.byte(value) == 0x98  -- a msgpack array of eight; a permit is digits
end

local function keep(job, record)
  records[#records + 1] = job
  records[#records + 1] = cmsgpack.pack(record)
end

local function stand(job, record, line, rank)
  record[8] = line .. '|' .. rank
  arrivals[#arrivals + 1] = 0
  arrivals[#arrivals + 1] = record[8]
  keep(job, record)
end

local function enter(job, record)
  local pool_lane, run_lane = lanes_of(record)
  local turn = math.max(pool_lane[1], run_lane[1]) + 1
  run_lane[1], run_lane[2] = turn, run_lane[2] + 1
  local line, keeper = 'p:' .. record[1], record[6] ~= '' and account(record[6])
  if keeper and not keeper.retired and keeper.pool == record[1] then
    line = 'c:' .. record[6]
    keeper.bound = keeper.bound + 1
    touched[record[6]] = true
  end
  stand(job, record, line .. '|' .. record[2], record[3] .. '|' .. string.format('%012d', turn) .. '|' .. job)
end

local function unbind(record)
  if string.sub(record[8], 1, 2) == 'c:' then
    local keeper = account(record[6])
    keeper.bound = keeper.bound - 1
    touched[record[6]] = true
  end
end

-- The job is out of the line. If it was called up, `turn` is now the pool's present one.
local function leave(record, turn)
  local pool_lane, run_lane = lanes_of(record)
  if turn and turn > pool_lane[1] then pool_lane[1] = turn end
  run_lane[2] = run_lane[2] - 1
  unbind(record)
end

-- A place is `line|class|turn|job`, its rank what follows the line: one digit, twelve digits, and the job.
local function rank_of(place, line)
  return string.sub(place, #line + 2)
end

local function turn_of(rank)
  return tonumber(string.sub(rank, 3, 14))
end

local function job_of(rank)
  return string.sub(rank, 16)
end

local function heads(line, most)
  return redis.call('ZRANGE', waiting, '[' .. line .. '|', '(' .. line .. '}', 'BYLEX', 'LIMIT', 0, most)
end

-- What came is written before anybody looks at the line; the lanes at the end of the script.
local function take_places()
  if #arrivals > 0 then
    redis.call('ZADD', waiting, unpack(arrivals))
  end
  if #records > 0 then
    redis.call('HSET', inside, unpack(records))
  end
  arrivals, records = {}, {}
end

local function close_lanes()
  for field, state in pairs(lane_cache) do
    if string.sub(field, 1, 2) == 'R:' and state[2] <= 0 then
      redis.call('HDEL', lanes, field)
    else
      redis.call('HSET', lanes, field, cmsgpack.pack(state))
    end
  end
end
