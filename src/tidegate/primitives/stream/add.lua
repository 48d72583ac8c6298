-- Add messages, all or none.
--
---@key stream       stream  messages
---@key added        string  present when this batch was added before
---@arg messages     packed  list of {field, value, ...}
---@arg remember_ms  int
-- Reply: how many were added
-- The same batch (the same `added` key) again adds nothing, for `remember_ms`.

if redis.call('EXISTS', added) == 1 then return 0 end
for _, fields in ipairs(messages) do
  redis.call('XADD', stream, '*', unpack(fields))
end
redis.call('SET', added, 1, 'PX', remember_ms)
return #messages
