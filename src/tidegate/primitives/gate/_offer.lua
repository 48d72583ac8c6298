-- Jobs come to the gate. One that is inside already, in whatever state, is left as it is.
---@include open
local function offer_all(offers, now)
  local names, seen, at_once = {}, {}, {}
  for n, offered in ipairs(offers) do names[n] = offered.job end
  local known, entered = #names > 0 and redis.call('HMGET', inside, unpack(names)) or {}, 0
  for n, offered in ipairs(offers) do
    if not known[n] and not seen[offered.job] then
      entered = entered + 1
      local barred = offered.barred or {}
      table.sort(barred)
      barred = #barred > 0 and '|' .. table.concat(barred, '|') .. '|' or ''
      local record = {offered.pool, offered.bucket, offered.priority, offered.run, offered.cost,
        offered.affinity .. barred, offered.payload, ''}
      seen[offered.job] = record
      if offered.delay_ms > 0 then
        keep(offered.job, record)
        plan('j|' .. offered.job, now + offered.delay_ms)
      else
        at_once[#at_once + 1] = offered.job
      end
    end
  end
  local coming = {}
  for n, job in ipairs(at_once) do coming[n] = seen[job] end
  load_lanes(coming)
  for n, job in ipairs(at_once) do
    enter(job, coming[n])
    want_open(coming[n][POOL], coming[n][BUCKET])
  end
  return entered
end
