-- Admission of a user that is not in line.
---@include entry

-- Return {'active', admission, ms left} | {'entering', admission, place or nothing} | nil.
local function admission_of(keys, user, now_ms)
  local admission = redis.call('HGET', keys.admissions, user)
  if not admission then return entry_of(keys, user) end
  local left_ms = (tonumber(redis.call('ZSCORE', keys.active, user)) or now_ms) - now_ms
  return {'active', tonumber(admission), math.max(left_ms, 0)}
end
