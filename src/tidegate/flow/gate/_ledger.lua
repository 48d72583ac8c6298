-- Credentials and their buckets: each read once per call, kept in tables, written back once by `close_ledger`.
--
-- A credential (field `name`):  pool ('' once dismissed), concurrency, per_minute, floor, window_ms, patience_ms, in_flight, bound,
--                               alone = {bucket = true, ...},
--                               blocked_until, rests (those that followed each other), wary (nobody knows yet whether
--                               the last rest was enough), retired, buckets = {name, ...}, minute = {{slot, calls}, ...}
-- A bucket (field `name|bucket`): limit, remaining, held, lost, lost_at, window, resets_at, fresh, turned
--   remaining  what the upstream said last, the least within one window
--   held       units of calls in flight; lost: units of calls of unknown fate, which no answer need have counted
--   window     the upstream's own name of the window (its reset time), which tells older answers from newer ones
--   fresh      the window ended by our clock and counts as full; late answers about the old one no longer matter
--   turned     how many windows ended so far by our clock: tells whether a call was made before or after
---@key allowances  hash  credential or credential|bucket -> its state
---@key pools       hash  pool -> its credentials
local ledger, touched = {}, {}

local function account(field)
  if ledger[field] == nil then
    local packed = redis.call('HGET', allowances, field)
    ledger[field] = packed and cmsgpack.unpack(packed) or false
  end
  return ledger[field] or nil
end

local function bucket_of(credential, bucket)
  local field = credential .. '|' .. bucket
  local state = account(field)
  if not state then
    state = {held = 0, lost = 0, lost_at = 0, turned = 0}
    ledger[field] = state
    local owner = account(credential)
    owner.buckets[#owner.buckets + 1] = bucket
    touched[credential] = true
  end
  touched[field] = true
  return state
end

local function credentials_of(pool)
  local packed = redis.call('HGET', pools, pool)
  return packed and cmsgpack.unpack(packed) or {}
end

-- A credential that was dismissed is forgotten with its last call.
local function strike_off(credential)
  for _, bucket in ipairs(account(credential).buckets) do
    ledger[credential .. '|' .. bucket] = false
    touched[credential .. '|' .. bucket] = true
  end
  ledger[credential] = false
  touched[credential] = true
end

local function close_ledger()
  for field in pairs(touched) do
    if ledger[field] then
      redis.call('HSET', allowances, field, cmsgpack.pack(ledger[field]))
    else
      redis.call('HDEL', allowances, field)
    end
  end
end
