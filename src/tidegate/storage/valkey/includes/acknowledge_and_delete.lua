-- Acknowledge messages and delete them: they are done. Ids that are gone change nothing. Returns how many were there.
local function acknowledge_and_delete(stream, group, ids)
  if #ids == 0 then return 0 end
  redis.call('XACK', stream, group, unpack(ids))
  return redis.call('XDEL', stream, unpack(ids))
end
