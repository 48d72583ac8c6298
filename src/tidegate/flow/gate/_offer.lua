-- Jobs come to the gate. One that is inside already, in whatever state, is left as it is.
---@include open
local function offer_all(offers, now)
  local names, seen, entered = {}, {}, 0
  for n, offered in ipairs(offers) do names[n] = offered.job end
  local known = #names > 0 and redis.call('HMGET', inside, unpack(names)) or {}
  for n, offered in ipairs(offers) do
    local job = offered.job
    if not known[n] and not seen[job] then
      seen[job] = true
      entered = entered + 1
      local record = {offered.pool, offered.bucket, offered.priority, offered.run, offered.cost, offered.affinity,
        offered.payload, ''}
      if offered.delay_ms > 0 then
        keep(job, record)
        plan('j|' .. job, now + offered.delay_ms)
      else
        enter(job, record)
        want_open(offered.pool, offered.bucket)
      end
    end
  end
  return entered
end
