-- A number greater than all before it. It is at least the time in ms, so that it goes on growing when the server has
-- lost its data, and a fence stored elsewhere is still recognised as older.
local function next_fence(fence, now_ms)
  local next = math.max(tonumber(redis.call('GET', fence) or 0) + 1, now_ms)
  redis.call('SET', fence, string.format('%.0f', next))
  return next
end
