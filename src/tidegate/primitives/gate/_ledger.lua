-- Credentials and their buckets: each read once per call, kept in tables, written back once by `close_ledger`.
--
-- A credential (field `name`):  pool ('' once dismissed), concurrency, per_minute, floor, window_ms, patience_ms, in_flight, bound,
--                               alone = {bucket = true, ...},
--                               blocked_until, rests (those that followed each other), wary (nobody knows yet whether
--                               the last rest was enough), retired, buckets = {name, ...}, minute = {{slot, calls}, ...},
--                               used (its last permit), unmetered, left = {pool = true, ...} (with calls in flight),
--                               learned = {concurrency, per_minute, since, every_ms, permit} (what refusals taught),
--                               ramp (calls at once that it has worked up to; nil: as many as it may)
-- A bucket (field `name|bucket`): limit, remaining, held, lost, lost_at, window, resets_at, fresh, turned;
--                               blocked_until, rests, wary, as above but for this bucket; health, healed_at
--   remaining  what the upstream said last, the least within one window
--   held       units of calls in flight; lost: units of calls of unknown fate, which no answer need have counted
--   window     the upstream's own name of the window (its reset time), which tells older answers from newer ones
--   fresh      the window ended by our clock and counts as full; late answers about the old one no longer matter
--   health     what rests have left of it, when that was; see _book.lua
-- Where the upstream tells no allowance, a credential may have a bucket for each of a thousand hosts: they stand in the
-- list `name|`, which is read where it is needed, and have a book once there is something to note in it.
--   turned     how many windows ended so far by our clock: tells whether a call was made before or after
---@key allowances  hash  credential or credential|bucket -> its state
---@key pools       hash  pool -> its credentials
local MOST_FIELDS = 1000  -- in one command: the server's Lua passes some thousands of arguments, not more
local ledger, touched, members = {}, {}, {}

local function account(field)
  if ledger[field] == nil then
    local packed = redis.call('HGET', allowances, field)
    ledger[field] = packed and cmsgpack.unpack(packed) or false
  end
  return ledger[field] or nil
end

-- Many at once.
local function read_ahead(fields)
  local missing = {}
  for _, field in ipairs(fields) do
    if ledger[field] == nil then missing[#missing + 1] = field end
  end
  for first = 1, #missing, MOST_FIELDS do
    local last = math.min(first + MOST_FIELDS - 1, #missing)
    for n, packed in ipairs(redis.call('HMGET', allowances, unpack(missing, first, last))) do
      ledger[missing[first + n - 1]] = packed and cmsgpack.unpack(packed) or false
    end
  end
end

-- Credentials with their books of one bucket.
local function read_books(credentials, bucket)
  local fields = {}
  for _, credential in ipairs(credentials) do
    fields[#fields + 1] = credential
    fields[#fields + 1] = credential .. '|' .. bucket
  end
  read_ahead(fields)
end

local function new_book()
  return {held = 0, lost = 0, lost_at = 0, turned = 0}
end

-- To look at, not to write in.
local NO_BOOK = new_book()
local function peek(credential, bucket)
  return account(credential .. '|' .. bucket) or NO_BOOK
end

-- Note that a credential has this bucket.
local function list_bucket(credential, bucket)
  local owner, list = account(credential), credential
  local names = owner.buckets
  if owner.unmetered then
    list = credential .. '|'
    names = account(list) or {}
    ledger[list] = names
  end
  names[#names + 1] = bucket
  touched[list] = true
end

local function bucket_of(credential, bucket)
  local field = credential .. '|' .. bucket
  local state = account(field)
  if not state then
    state = new_book()
    ledger[field] = state
    list_bucket(credential, bucket)
  end
  touched[field] = true
  return state
end

local function all_buckets(credential)
  local names = {}
  for _, list in ipairs({account(credential).buckets, account(credential .. '|') or {}}) do
    for _, bucket in ipairs(list) do names[#names + 1] = bucket end
  end
  return names
end

local function credentials_of(pool)
  if not members[pool] then
    local packed = redis.call('HGET', pools, pool)
    members[pool] = packed and cmsgpack.unpack(packed) or {}
  end
  return members[pool]
end

local function set_credentials(pool, names)
  members[pool] = names
  if #names > 0 then
    redis.call('HSET', pools, pool, cmsgpack.pack(names))
  else
    redis.call('HDEL', pools, pool)
  end
end

-- A credential that was dismissed is forgotten with its last call.
local function strike_off(credential)
  local fields = {credential, credential .. '|'}
  for _, bucket in ipairs(all_buckets(credential)) do fields[#fields + 1] = credential .. '|' .. bucket end
  for _, field in ipairs(fields) do ledger[field], touched[field] = false, true end
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
