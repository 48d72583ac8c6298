-- Write members of one window, except where the present score is as high.
--
-- Members with equal scores are ordered by their names in the zset: the place, which is greater the earlier the score
-- was
-- reached, followed by the id. The hash has the place by which a member is found.
local TOGETHER = 1000

-- Batch members, since a call costs more than its work for one member.
local function some_at_a_time(list, call)
  for first = 1, #list, TOGETHER do call(unpack(list, first, math.min(first + TOGETHER - 1, #list))) end
end

-- Return what the zset has for these rows, by id: {place, score}.
local function find_present(scores, places, rows)
  local ids, known, present = {}, {}, {}
  for n, row in ipairs(rows) do ids[n] = row[1] end
  some_at_a_time(ids, function(...)
    for _, place in ipairs(redis.call('HMGET', places, ...)) do known[#known + 1] = place end
  end)
  local found, names = {}, {}
  for n, id in ipairs(ids) do
    if known[n] then found[#found + 1], names[#names + 1] = n, known[n] .. id end
  end
  local at = 0
  some_at_a_time(names, function(...)
    for _, score in ipairs(redis.call('ZMSCORE', scores, ...)) do
      at = at + 1
      present[ids[found[at]]] = {known[found[at]], tonumber(score or -1)}
    end
  end)
  return present
end

local function put_rows(scores, places, rows)
  local present, entries, hashed, former, moved = find_present(scores, places, rows), {}, {}, {}, 0
  for _, row in ipairs(rows) do
    local id, place, score = unpack(row)
    local before = present[id]
    if not before or before[2] < score then
      entries[#entries + 1], entries[#entries + 2] = string.format('%.0f', score), place .. id
      hashed[#hashed + 1], hashed[#hashed + 2] = id, place
      if before and before[1] ~= place then former[#former + 1] = before[1] .. id end
      present[id], moved = {place, score}, moved + 1
    end
  end
  some_at_a_time(entries, function(...) redis.call('ZADD', scores, ...) end)
  some_at_a_time(hashed, function(...) redis.call('HSET', places, ...) end)
  -- Last, since a zset without members would be deleted together with its expiry.
  some_at_a_time(former, function(...) redis.call('ZREM', scores, ...) end)
  return moved
end

-- The expiry of a window does not change with late members; an expired window is not created again.
local function put_all(scores, places, rows, left_ms)
  if left_ms <= 0 or #rows == 0 then return 0 end
  local is_new, moved = redis.call('EXISTS', scores) == 0, put_rows(scores, places, rows)
  if is_new then
    redis.call('PEXPIRE', scores, left_ms)
    redis.call('PEXPIRE', places, left_ms)
  end
  return moved
end
