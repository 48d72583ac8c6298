-- Waiting jobs: all queues of all pools in one sorted set, all scores 0, ordered by `queue|priority|turn|job`.
--
-- A queue is `p:pool|bucket`, `c:credential|bucket` for jobs that keep the credential they had, or
-- `b:pool|bucket|group` for jobs that some credentials of the pool are excluded from: one queue for each set of excluded
-- credentials, so that no credential reads jobs that it may not take. A position is a member of the sorted set, its rank
-- what follows the queue.
--
-- Turns make the runs of a pool take turns (start-time fair queueing). They are counted per pool, bucket and priority: a
-- job's turn is one more than the larger of the pool's present turn and its run's last one. A run's turn is deleted when
-- its last job leaves the queue.
--
-- AFFINITY holds the credential that a job wants, or nothing; and, behind a bar, those that are excluded from it, each with
-- a bar behind it.
---@include credentials
local POOL, BUCKET, PRIORITY, RUN, COST, AFFINITY, PAYLOAD, POSITION = 1, 2, 3, 4, 5, 6, 7, 8  -- a job's record
local RECORD_BYTE = 0x98  -- a record begins with it (msgpack: an array of eight); a permit is digits

-- The digits of a whole number. Lua converts numbers slowly, and a call converts the same few numbers for each job.
local function digits_of(gate, number)
  local digits = gate.digits[number]
  if not digits then
    digits = string.format('%.0f', number)
    gate.digits[number] = digits
  end
  return digits
end

-- The record of a job from its value in `jobs`; nil where it does not wait.
local function record_from(value)
  return value and string.byte(value) == RECORD_BYTE and cmsgpack.unpack(value) or nil
end

local function wanted_credential(record)
  return string.match(record[AFFINITY], '^[^|]*')
end

-- As it stands in the record: `one|other|`, or nil.
local function excluded_credentials(record)
  return string.match(record[AFFINITY], '|(.+)$')
end

local function is_excluded(credential, excluded)
  return excluded and string.find('|' .. excluded, '|' .. credential .. '|', 1, true) ~= nil
end

local function rank_of(position, queue)
  return string.sub(position, #queue + 2)
end

-- A rank is one digit, twelve digits and the job, with bars between them.
local function turn_of(rank)
  return tonumber(string.sub(rank, 3, 14))
end

local function job_of(rank)
  return string.sub(rank, 16)
end

local function first_positions(gate, queue, most)
  return redis.call('ZRANGE', gate.keys.waiting, '[' .. queue .. '|', '(' .. queue .. '}', 'BYLEX', 'LIMIT', 0, most)
end

-- The buckets in which jobs wait in the queues of `p:pool`, `b:pool` or `c:credential`.
local function waiting_buckets(gate, owner)
  local found, from = {}, '[' .. owner .. '|'
  while true do
    local position = redis.call('ZRANGE', gate.keys.waiting, from, '(' .. owner .. '}', 'BYLEX', 'LIMIT', 0, 1)[1]
    if not position then return found end
    local bucket = string.match(string.sub(position, #owner + 2), '^([^|]*)|')
    found[#found + 1] = bucket
    from = '[' .. owner .. '|' .. bucket .. '}'
  end
end

-- Read the turns of many jobs at once: `gate.turns_of[record]` is then {the pool's, the run's}, each {turn, jobs}.
local function read_turns(gate, records)
  local missing, turns = {}, gate.turns
  for _, record in ipairs(records) do
    local base = record[POOL] .. '|' .. record[BUCKET] .. '|' .. digits_of(gate, record[PRIORITY])
    local fields = {'T:' .. base, 'R:' .. base .. '|' .. record[RUN]}
    for n = 1, 2 do
      local turn = turns[fields[n]]
      if not turn then
        turn = {0, 0}
        turns[fields[n]] = turn
        missing[#missing + 1] = fields[n]
      end
      fields[n] = turn
    end
    gate.turns_of[record] = fields
  end
  if #missing == 0 then return end
  for n, value in ipairs(redis.call('HMGET', gate.keys.turns, unpack(missing))) do
    if value then
      local turn, jobs = string.match(value, '^(%d+) (%d+)$')
      turns[missing[n]][1], turns[missing[n]][2] = tonumber(turn), tonumber(jobs)
    end
  end
end

-- The queue of the pool for a job that wants no particular credential.
local function pool_queue(record)
  local excluded, owner = excluded_credentials(record), record[POOL] .. '|' .. record[BUCKET]
  return excluded and 'b:' .. owner .. '|' .. string.sub(redis.sha1hex(excluded), 1, 16) or 'p:' .. owner
end

local function keep_record(gate, job, record)
  gate.records[#gate.records + 1] = job
  gate.records[#gate.records + 1] = cmsgpack.pack(record)
end

local function place(gate, job, record, queue, rank)
  record[POSITION] = queue .. '|' .. rank
  gate.arrivals[#gate.arrivals + 1] = '0'
  gate.arrivals[#gate.arrivals + 1] = record[POSITION]
  keep_record(gate, job, record)
end

-- Put a job at the end of its run. Its turns must have been read.
local function join_queue(gate, job, record)
  local pool_turn, run_turn = gate.turns_of[record][1], gate.turns_of[record][2]
  local turn = math.max(pool_turn[1], run_turn[1]) + 1
  run_turn[1], run_turn[2] = turn, run_turn[2] + 1
  local queue, wanted = pool_queue(record), wanted_credential(record)
  local credential = wanted ~= '' and not is_excluded(wanted, excluded_credentials(record)) and read_state(gate, wanted)
  if credential and not credential.retired and credential.pool == record[POOL] then
    queue = 'c:' .. wanted .. '|' .. record[BUCKET]
    credential.bound = credential.bound + 1
    gate.changed[wanted] = true
  end
  local rank = digits_of(gate, record[PRIORITY]) .. '|' .. string.format('%012d', turn) .. '|' .. job
  place(gate, job, record, queue, rank)
end

-- Count that a job no longer waits for the credential it wanted.
local function unbind(gate, record)
  local wanted = wanted_credential(record)
  local credential = string.sub(record[POSITION], 1, 2) == 'c:' and read_state(gate, wanted)
  if credential then
    credential.bound = math.max(0, credential.bound - 1)
    gate.changed[wanted] = true
  end
end

-- Count that a job left its queue. If it was dispatched, `turn` is now the pool's present one. Its turns must have been read.
local function leave_queue(gate, record, turn)
  local pool_turn, run_turn = gate.turns_of[record][1], gate.turns_of[record][2]
  if turn and turn > pool_turn[1] then pool_turn[1] = turn end
  run_turn[2] = run_turn[2] - 1
  unbind(gate, record)
end

-- Whether every credential is excluded. Then none is: the job's information is out of date, and the caller checks again.
local function are_all_excluded(gate, credentials, excluded)
  for _, name in ipairs(credentials) do
    local credential = read_state(gate, name)
    if credential and not credential.retired and not is_excluded(name, excluded) then return false end
  end
  return true
end

-- The queues of a bucket with jobs that some credentials are excluded from, each with those of its first job.
local function exclusion_queues_of(gate, pool, bucket)
  local owner = 'b:' .. pool .. '|' .. bucket
  if gate.exclusion_queues[owner] then return gate.exclusion_queues[owner] end
  local found, from = {}, '[' .. owner .. '|'
  while true do
    local position = redis.call('ZRANGE', gate.keys.waiting, from, '(' .. owner .. '}', 'BYLEX', 'LIMIT', 0, 1)[1]
    if not position then break end
    local queue = owner .. '|' .. string.match(string.sub(position, #owner + 2), '^[^|]*')
    local record = record_from(redis.call('HGET', gate.keys.jobs, job_of(rank_of(position, queue))))
    if record then
      local excluded = excluded_credentials(record)
      if are_all_excluded(gate, credentials_of(gate, pool), excluded) then excluded = nil end
      found[#found + 1] = {queue = queue, excluded = excluded}
      from = '[' .. queue .. '}'
    else
      redis.call('ZREM', gate.keys.waiting, position)  -- its record is gone
    end
  end
  gate.exclusion_queues[owner] = found
  return found
end

-- The queues that a credential serves: its pool's, its own, and those of jobs that it is not excluded from.
local function queues_of(gate, credential, pool, bucket)
  local queues = {'p:' .. pool .. '|' .. bucket}
  for _, group in ipairs(exclusion_queues_of(gate, pool, bucket)) do
    if not is_excluded(credential, group.excluded) then queues[#queues + 1] = group.queue end
  end
  if read_state(gate, credential).bound > 0 then queues[#queues + 1] = 'c:' .. credential .. '|' .. bucket end
  return queues
end

-- Whether jobs wait in any queue of a bucket.
local function has_waiting_jobs(gate, credentials, pool, bucket)
  if first_positions(gate, 'p:' .. pool .. '|' .. bucket, 1)[1] then return true end
  prefetch_states(gate, credentials)
  for _, group in ipairs(exclusion_queues_of(gate, pool, bucket)) do
    if first_positions(gate, group.queue, 1)[1] then return true end
  end
  for _, credential in ipairs(credentials) do
    local is_wanted = read_state(gate, credential).bound > 0
    if is_wanted and first_positions(gate, 'c:' .. credential .. '|' .. bucket, 1)[1] then return true end
  end
  return false
end

-- Write the jobs that joined. It must precede every read of the queues.
local function save_arrivals(gate)
  if #gate.arrivals > 0 then redis.call('ZADD', gate.keys.waiting, unpack(gate.arrivals)) end
  if #gate.records > 0 then redis.call('HSET', gate.keys.jobs, unpack(gate.records)) end
  gate.arrivals, gate.records, gate.exclusion_queues = {}, {}, {}
end

local function save_turns(gate)
  local kept, empty = {}, {}
  for field, turn in pairs(gate.turns) do
    if string.sub(field, 1, 2) == 'R:' and turn[2] <= 0 then
      empty[#empty + 1] = field
    else
      kept[#kept + 1] = field
      kept[#kept + 1] = string.format('%d %d', turn[1], turn[2])
    end
  end
  if #kept > 0 then redis.call('HSET', gate.keys.turns, unpack(kept)) end
  if #empty > 0 then redis.call('HDEL', gate.keys.turns, unpack(empty)) end
end
