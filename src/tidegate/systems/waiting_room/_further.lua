-- Where somebody is who is past the line: inside, or on the way.
---@key active      zset  user scored by the end of the session, ms
---@key admissions  hash  user -> admission
---@arg now_ms      time
---@include entry

-- {'active', admission, ms left} | {'entering', admission, place or nothing} | nil
local function further(user)
  local admission = redis.call('HGET', admissions, user)
  if not admission then return entry_of(user) end
  local left_ms = (tonumber(redis.call('ZSCORE', active, user)) or now_ms) - now_ms
  return {'active', tonumber(admission), math.max(left_ms, 0)}
end
