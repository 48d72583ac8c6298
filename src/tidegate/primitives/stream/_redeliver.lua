-- Pass messages on that were delivered and not acknowledged: each becomes a new entry at the end of the stream, which
-- wakes whoever waits for one, or a dead letter when it was delivered `most` times. The old id means nothing any more.
---@key stream  stream  messages
---@key dead    stream  dead letters
---@include ack_delete

-- The message's own fields, and the how-maniest delivery this was.
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

local function bury(id, fields, deliveries, reason, now_ms)
  redis.call('XADD', dead, '*', 'dead.message', id, 'dead.deliveries', deliveries, 'dead.reason', reason,
    'dead.at_ms', now_ms, unpack(fields))
end

local function give_again(fields, deliveries)
  if deliveries > 1 then
    fields[#fields + 1] = 'deliveries'
    fields[#fields + 1] = deliveries
  end
  redis.call('XADD', stream, '*', unpack(fields))
end

-- `why` is {reason = text, most = deliveries after which it is buried}; without `most` the delivery does not count.
-- Returns how many were given again and how many were buried.
local function hand_on(group, ids, why, now_ms)
  local given, buried = 0, 0
  for _, id in ipairs(ids) do
    local entry = redis.call('XRANGE', stream, id, id)[1]
    if entry then
      local fields, deliveries = open_entry(entry)
      if why.most and deliveries >= why.most then
        bury(id, fields, deliveries, why.reason, now_ms)
        buried = buried + 1
      else
        give_again(fields, why.most and deliveries + 1 or deliveries)
        given = given + 1
      end
    end
  end
  ack_delete(group, ids)
  return given, buried
end
