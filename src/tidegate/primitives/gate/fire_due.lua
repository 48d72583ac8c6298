-- Do what is due: enqueue jobs at the end of their delay, dispatch buckets that may have capacity again.
--
---@keyset keys
---@arg most    int
---@arg now_ms  time
---@include open_gate
---@include dispatch
-- Reply: {entries done, jobs dispatched, ms until the next entry is due or -1}

local MOST_BUCKETS = 50  -- each may read all credentials of a pool
local gate = open_gate(keys, now_ms)
local entries = redis.call('ZRANGE', keys.due, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, most)
local jobs, records, buckets = {}, {}, 0
for n, entry in ipairs(entries) do
  local kind, rest = string.sub(entry, 1, 1), string.sub(entry, 3)
  if kind == 'd' and buckets == MOST_BUCKETS then
    for m = n, #entries do entries[m] = nil end
    break
  elseif kind == 'd' then
    buckets = buckets + 1
    local pool, bucket = string.match(rest, '^(.*)|(.*)$')
    request_dispatch(gate, pool, bucket)
  else
    local record = record_from(redis.call('HGET', keys.jobs, rest))
    if record and record[POSITION] == '' then
      jobs[#jobs + 1], records[#records + 1] = rest, record
    end
  end
end
read_turns(gate, records)
for n, job in ipairs(jobs) do
  join_queue(gate, job, records[n])
  request_dispatch(gate, records[n][POOL], records[n][BUCKET])
end
if #entries > 0 then redis.call('ZREM', keys.due, unpack(entries)) end
local dispatched = close_gate(gate)
return {#entries, dispatched, next_due_in(keys, now_ms)}
