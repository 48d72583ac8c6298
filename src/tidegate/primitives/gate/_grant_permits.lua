-- Give the permits of one credential to waiting jobs and move these to the stream.
---@include capacity
---@include queues
local MOST_AT_ONCE = 500  -- jobs that one script call dispatches, so that no call holds the server for long

-- The first jobs of all queues that a credential serves, ordered by priority and turn. Returns ranks and positions.
local function next_in_queues(gate, credential, pool, bucket, most)
  local ranks, positions, by_rank = {}, {}, {}
  local queues = queues_of(gate, credential, pool, bucket)
  for _, queue in ipairs(queues) do
    for _, position in ipairs(first_positions(gate, queue, most)) do
      ranks[#ranks + 1] = rank_of(position, queue)
      by_rank[ranks[#ranks]] = position
    end
  end
  if #queues > 1 then table.sort(ranks) end
  for n = #ranks, most + 1, -1 do ranks[n] = nil end
  for n, rank in ipairs(ranks) do positions[n] = by_rank[rank] end
  return ranks, positions
end

-- The first jobs that the units pay for, as {job, turn, position, record}; their cost; when the next one may be paid for.
-- A position without a record belongs to no job and is deleted.
local function affordable_jobs(gate, ranks, positions, units, credential, allowance)
  local names, chosen, cost = {}, {}, 0
  for n, rank in ipairs(ranks) do names[n] = job_of(rank) end
  local full = allowance.limit and math.max(1, allowance.limit - floor_of(credential, allowance.limit)) or math.huge
  for n, value in ipairs(redis.call('HMGET', gate.keys.jobs, unpack(names))) do
    local record = record_from(value)
    if record then
      record[COST] = math.min(record[COST], full)  -- what costs more than a whole window would wait for ever
      if cost + record[COST] > units then
        return chosen, cost, units_again_at(credential, allowance, gate.now)
      end
      cost = cost + record[COST]
      chosen[#chosen + 1] = {job = names[n], turn = turn_of(ranks[n]), position = positions[n], record = record}
    else
      redis.call('ZREM', gate.keys.waiting, positions[n])
    end
  end
  return chosen, cost, nil
end

-- Append a job with its permit to the stream. Its request must be sent `by` a time.
local function append_to_stream(gate, one, credential, permit, windows_ended, by)
  local record = one.record
  local terms = credential .. '|' .. record[BUCKET] .. '|' .. digits_of(gate, record[COST])
  gate.granted[#gate.granted + 1] = permit
  gate.granted[#gate.granted + 1] = terms .. '|' .. one.job
  gate.dispatched_jobs[#gate.dispatched_jobs + 1] = one.job
  gate.dispatched_jobs[#gate.dispatched_jobs + 1] = permit
  terms = permit .. '|' .. terms .. '|' .. windows_ended
  if record[PAYLOAD] == '' then
    redis.call('XADD', gate.keys.stream, '*', 'job', one.job, 'permit', terms, 'by', by)
  else
    redis.call('XADD', gate.keys.stream, '*', 'job', one.job, 'permit', terms, 'by', by, 'payload', record[PAYLOAD])
  end
end

-- Dispatch jobs that this credential serves, at most `calls` with `units` in all. Returns when more may be dispatched.
local function grant_permits(gate, name, calls, units, pool, bucket)
  local ranks, positions = next_in_queues(gate, name, pool, bucket, math.min(calls, MOST_AT_ONCE - gate.dispatched))
  if #ranks == 0 then return nil end
  local allowance, credential = allowance_of(gate, name, bucket), read_state(gate, name)
  local chosen, cost, again_at = affordable_jobs(gate, ranks, positions, units, credential, allowance)
  if #chosen == 0 then return again_at end
  local records, left = {}, {}
  for n, one in ipairs(chosen) do records[n], left[n] = one.record, one.position end
  read_turns(gate, records)
  local before = redis.call('HINCRBY', gate.keys.permits, '#', #chosen) - #chosen
  local windows_ended, by = digits_of(gate, allowance.windows_ended), digits_of(gate, gate.now + SEND_WITHIN_MS)
  for n, one in ipairs(chosen) do
    leave_queue(gate, one.record, one.turn)
    append_to_stream(gate, one, name, string.format('%d', before + n), windows_ended, by)
  end
  redis.call('ZREM', gate.keys.waiting, unpack(left))
  spend(gate, name, allowance, #chosen, cost)
  credential.last_permit = before + #chosen
  gate.dispatched = gate.dispatched + #chosen
  return again_at
end

-- Move jobs that want this credential to the queue of the pool, at the rank they have. Returns how many were moved.
local function release_affinity(gate, credential, bucket)
  local queue = 'c:' .. credential .. '|' .. bucket
  local positions = first_positions(gate, queue, MOST_AT_ONCE)
  for _, position in ipairs(positions) do
    local rank = rank_of(position, queue)
    local record = record_from(redis.call('HGET', gate.keys.jobs, job_of(rank)))
    if record then
      unbind(gate, record)
      local excluded = excluded_credentials(record)
      record[AFFINITY] = excluded and '|' .. excluded or ''
      place(gate, job_of(rank), record, pool_queue(record), rank)
    end
  end
  if #positions > 0 then redis.call('ZREM', gate.keys.waiting, unpack(positions)) end
  save_arrivals(gate)
  return #positions
end
