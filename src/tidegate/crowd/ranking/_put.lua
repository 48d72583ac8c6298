-- Put members at their places in one window, each unless its score there is as high already.
--
-- Members of one score are ordered by what they are called in the zset: their place, which is greater the earlier they
-- reached it, and their id. The hash knows the place by which a member is found.

local function put_member(scores, places, id, place, score)
  local before = redis.call('HGET', places, id)
  if before then
    local known = redis.call('ZSCORE', scores, before .. id)
    if known and tonumber(known) >= score then return 0 end
  end
  redis.call('ZADD', scores, string.format('%.0f', score), place .. id)
  redis.call('HSET', places, id, place)
  -- Only now: a window without its last member would be gone, and its time with it.
  if before and before ~= place then redis.call('ZREM', scores, before .. id) end
  return 1
end

-- A window lives until its own time, whoever comes late to it; one whose time is over is not brought back.
local function put_all(scores, places, rows, left_ms)
  if left_ms <= 0 then return 0 end
  local is_new, moved = redis.call('EXISTS', scores) == 0, 0
  for _, row in ipairs(rows) do moved = moved + put_member(scores, places, row[1], row[2], row[3]) end
  if is_new then
    redis.call('PEXPIRE', scores, left_ms)
    redis.call('PEXPIRE', places, left_ms)
  end
  return moved
end
