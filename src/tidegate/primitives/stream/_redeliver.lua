-- Redeliver messages that were delivered and not acknowledged: each becomes a new entry at the end of the stream, or a dead
-- letter after `most` deliveries. The old id is void.
---@include acknowledge_and_delete

-- The fields of a message, and its number of deliveries.
local function open_entry(entry)
  local fields, deliveries = {}, 1
  for n = 1, #entry[2], 2 do
    local name, value = entry[2][n], entry[2][n + 1]
    if name == 'deliveries' then
      deliveries = tonumber(value)
    else
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
  end
  return fields, deliveries
end

local function add_dead_letter(dead, id, fields, deliveries, reason, now_ms)
  redis.call('XADD', dead, '*', 'dead.message', id, 'dead.deliveries', deliveries, 'dead.reason', reason,
    'dead.at_ms', now_ms, unpack(fields))
end

local function add_again(stream, fields, deliveries)
  if deliveries > 1 then
    fields[#fields + 1] = 'deliveries'
    fields[#fields + 1] = deliveries
  end
  redis.call('XADD', stream, '*', unpack(fields))
end

-- `why` is {reason = text, most = deliveries after which it becomes a dead letter}; without `most` the
-- delivery does not count.
-- Returns how many were redelivered and how many became dead letters.
local function redeliver(stream, dead, group, ids, why, now_ms)
  local redelivered, dead_lettered = 0, 0
  for _, id in ipairs(ids) do
    local entry = redis.call('XRANGE', stream, id, id)[1]
    if entry then
      local fields, deliveries = open_entry(entry)
      if why.most and deliveries >= why.most then
        add_dead_letter(dead, id, fields, deliveries, why.reason, now_ms)
        dead_lettered = dead_lettered + 1
      else
        add_again(stream, fields, why.most and deliveries + 1 or deliveries)
        redelivered = redelivered + 1
      end
    end
  end
  acknowledge_and_delete(stream, group, ids)
  return redelivered, dead_lettered
end
