-- Add jobs to their queues. A job that is known already, in whatever state, is left as it is. Returns how many were new.
---@include dispatch
local function enqueue(gate, jobs)
  local names, new, without_delay, records = {}, {}, {}, {}
  for n, job in ipairs(jobs) do names[n] = job.job end
  local known, added = #names > 0 and redis.call('HMGET', gate.keys.jobs, unpack(names)) or {}, 0
  for n, job in ipairs(jobs) do
    if not known[n] and not new[job.job] then
      added = added + 1
      local excluded = job.excluded or {}
      table.sort(excluded)
      excluded = #excluded > 0 and '|' .. table.concat(excluded, '|') .. '|' or ''
      local record =
        {job.pool, job.bucket, job.priority, job.run, job.cost, job.affinity .. excluded, job.payload, ''}
      new[job.job] = record
      if job.delay_ms > 0 then
        keep_record(gate, job.job, record)
        schedule(gate.keys, 'j|' .. job.job, gate.now + job.delay_ms)
      else
        without_delay[#without_delay + 1], records[#records + 1] = job.job, record
      end
    end
  end
  read_turns(gate, records)
  for n, name in ipairs(without_delay) do
    join_queue(gate, name, records[n])
    request_dispatch(gate, records[n][POOL], records[n][BUCKET])
  end
  return added
end
