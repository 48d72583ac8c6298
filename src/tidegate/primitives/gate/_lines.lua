-- The line: every waiting job of every pool in one sorted set, all scores 0, ordered by `line|class|turn|job`.
--
-- A line is `p:pool|bucket`, `c:credential|bucket` for jobs that keep the credential they had, or `b:pool|bucket|group`
-- for jobs that some credentials of the pool are barred from: one line for each set of barred credentials, so that a job
-- is never looked at in vain. Turns are counted per pool, bucket and class: a job's turn is one more than the larger of
-- the pool's present turn and its run's last one, so a run with 100,000 jobs and a run with one take turns. A run's lane
-- goes when its last job leaves the line.
--
-- AFFINITY holds what a job says of credentials: the one it wants, or nothing; and, behind a bar, those that are barred
-- from it, each with a bar behind it.
---@key waiting  zset  line|class|turn|job
---@key lanes    hash  T:pool|bucket|class -> 'turn 0'; R:pool|bucket|class|run -> 'last-turn jobs'; see remind.lua
---@key inside   hash  job -> its record while it waits, its permit while it is out
---@include ledger
local POOL, BUCKET, CLASS, RUN, COST, AFFINITY, PAYLOAD, PLACE = 1, 2, 3, 4, 5, 6, 7, 8  -- a job's record
local lane_cache, lanes_of, arrivals, records, groups = {}, {}, {}, {}, {}

local function wanted_by(record)
  return string.match(record[AFFINITY], '^[^|]*')
end

-- As it stands in the record: `one|other|`, or nil.
local function barred_from(record)
  return string.match(record[AFFINITY], '|(.+)$')
end

local function is_barred(credential, barred)
  return barred and string.find('|' .. barred, '|' .. credential .. '|', 1, true) ~= nil
end

-- The line of the pool for a job that wants no particular credential.
local function pool_line(record)
  local barred, line = barred_from(record), record[POOL] .. '|' .. record[BUCKET]
  return barred and 'b:' .. line .. '|' .. string.sub(redis.sha1hex(barred), 1, 16) or 'p:' .. line
end

-- Read the lanes of many jobs at once: `lanes_of[record]` is then {the pool's, the run's}.
local function load_lanes(of)
  local wanted, cached = {}, lane_cache
  for _, record in ipairs(of) do
    local base = record[POOL] .. '|' .. record[BUCKET] .. '|' .. record[CLASS]
    local fields = {'T:' .. base, 'R:' .. base .. '|' .. record[RUN]}
    for n = 1, 2 do
      local lane = cached[fields[n]]
      if not lane then
        lane = {0, 0}
        cached[fields[n]] = lane
        wanted[#wanted + 1] = fields[n]
      end
      fields[n] = lane
    end
    lanes_of[record] = fields
  end
  if #wanted == 0 then return end
  for n, told in ipairs(redis.call('HMGET', lanes, unpack(wanted))) do
    if told then
      local turn, jobs = string.match(told, '^(%d+) (%d+)$')
      cached[wanted[n]][1], cached[wanted[n]][2] = tonumber(turn), tonumber(jobs)
    end
  end
end

local function is_record(value)
  return string.byte(value) == 0x98  -- a msgpack array of eight; a permit is digits
end

local function keep(job, record)
  records[#records + 1] = job
  records[#records + 1] = cmsgpack.pack(record)
end

local function stand(job, record, line, rank)
  record[PLACE] = line .. '|' .. rank
  arrivals[#arrivals + 1] = 0
  arrivals[#arrivals + 1] = record[PLACE]
  keep(job, record)
end

-- The lanes must be loaded.
local function enter(job, record)
  local pool_lane, run_lane = lanes_of[record][1], lanes_of[record][2]
  local turn = math.max(pool_lane[1], run_lane[1]) + 1
  run_lane[1], run_lane[2] = turn, run_lane[2] + 1
  local line, wanted = pool_line(record), wanted_by(record)
  local keeper = wanted ~= '' and not is_barred(wanted, barred_from(record)) and account(wanted)
  if keeper and not keeper.retired and keeper.pool == record[POOL] then
    line = 'c:' .. wanted .. '|' .. record[BUCKET]
    keeper.bound = keeper.bound + 1
    touched[wanted] = true
  end
  stand(job, record, line, record[CLASS] .. '|' .. string.format('%012d', turn) .. '|' .. job)
end

local function unbind(record)
  local wanted = wanted_by(record)
  local keeper = string.sub(record[PLACE], 1, 2) == 'c:' and account(wanted)
  if keeper then
    keeper.bound = math.max(0, keeper.bound - 1)
    touched[wanted] = true
  end
end

-- The job is out of the line. If it was called up, `turn` is now the pool's present one. The lanes must be loaded.
local function leave(record, turn)
  local pool_lane, run_lane = lanes_of[record][1], lanes_of[record][2]
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
  if #arrivals > 0 then redis.call('ZADD', waiting, unpack(arrivals)) end
  if #records > 0 then redis.call('HSET', inside, unpack(records)) end
  arrivals, records, groups = {}, {}, {}
end

local function close_lanes()
  local kept, empty = {}, {}
  for field, state in pairs(lane_cache) do
    if string.sub(field, 1, 2) == 'R:' and state[2] <= 0 then
      empty[#empty + 1] = field
    else
      kept[#kept + 1] = field
      kept[#kept + 1] = string.format('%d %d', state[1], state[2])
    end
  end
  if #kept > 0 then redis.call('HSET', lanes, unpack(kept)) end
  if #empty > 0 then redis.call('HDEL', lanes, unpack(empty)) end
end
