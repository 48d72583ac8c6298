-- Which lines a credential serves: that of its pool, that of its own, and those of jobs that it is not barred from.
---@key waiting  zset  line|class|turn|job
---@key inside   hash  job -> its record while it waits
---@include lines

-- Whether every credential is barred. Then none is: the jobs' information is out of date, and the caller checks again.
local function are_all_barred(credentials, barred)
  for _, credential in ipairs(credentials) do
    local state = account(credential)
    if state and not state.retired and not is_barred(credential, barred) then return false end
  end
  return true
end

-- The lines of a bucket whose jobs some credentials are barred from, each with those; the first job of a line tells.
local function barred_lines(pool, bucket)
  local owner = 'b:' .. pool .. '|' .. bucket
  if groups[owner] then return groups[owner] end
  local found, from = {}, '[' .. owner .. '|'
  while true do
    local place = redis.call('ZRANGE', waiting, from, '(' .. owner .. '}', 'BYLEX', 'LIMIT', 0, 1)[1]
    if not place then break end
    local line = owner .. '|' .. string.match(string.sub(place, #owner + 2), '^[^|]*')
    local packed = redis.call('HGET', inside, job_of(rank_of(place, line)))
    if packed and is_record(packed) then
      local barred = barred_from(cmsgpack.unpack(packed))
      if are_all_barred(credentials_of(pool), barred) then barred = nil end
      found[#found + 1] = {line = line, barred = barred}
      from = '[' .. line .. '}'
    else
      redis.call('ZREM', waiting, place)  -- its record is gone
    end
  end
  groups[owner] = found
  return found
end

-- The lines that a credential serves.
local function lines_of(credential, pool, bucket)
  local lines = {'p:' .. pool .. '|' .. bucket}
  for _, group in ipairs(barred_lines(pool, bucket)) do
    if not is_barred(credential, group.barred) then lines[#lines + 1] = group.line end
  end
  if account(credential).bound > 0 then lines[#lines + 1] = 'c:' .. credential .. '|' .. bucket end
  return lines
end
