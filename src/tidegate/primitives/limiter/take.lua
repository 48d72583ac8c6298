-- Take permits for the waiting callers of one process, under all rules at once, HIGH before LOW.
--
---@keyset keys
---@arg plan     packed  rules, floor, shares, and how long things are kept
---@arg demands  packed  {priority, {units, ...}} for each priority that asks, HIGH first
---@arg owner    str
---@arg now_ms   time
---@include room
-- Reply: {{granted, wait_ms, granted_at_ms}, ...} in the order of the demands: how many requests were granted, from the
-- first on; in how many ms to come back for the rest; and the time, which never goes back while the server has its data.
-- A repeated call spends again what it spends, so a lost reply costs permits and never grants too many.

-- Units that processes wait for, per priority. A process that did not ask again in time is removed.
local function read_lines(book)
  local lines = {{units = 0, reserved = 0, latest = 0, own = 0}, {units = 0, reserved = 0, latest = 0, own = 0}}
  local flat = redis.call('HGETALL', keys.waiting)
  for i = 1, #flat, 2 do
    local priority, waiting_owner = string.match(flat[i], '^(%d)|(.*)$')
    local units, reserved, due = string.match(flat[i + 1], '^(%d+)|(%d+)|(%d+)$')
    local line = lines[tonumber(priority)]
    if due + plan.grace_ms < book.clock then
      redis.call('HDEL', keys.waiting, flat[i])
    elseif waiting_owner == owner then
      line.own = tonumber(units)
    else
      line.units, line.reserved = line.units + units, line.reserved + reserved
      line.latest = math.max(line.latest, due)
    end
  end
  return lines
end

local function longest_prefix(costs, allowed)
  local count, taken, unmet = 0, 0, 0
  for _, cost in ipairs(costs) do
    if unmet == 0 and taken + cost <= allowed then
      count, taken = count + 1, taken + cost
    else
      unmet = unmet + cost
    end
  end
  return count, taken, unmet
end

-- When to ask again: as soon as there is room, after the turns of the processes that were refused before. A turn starts
-- where the previous one ends, not at the time of the request, so lateness does not add up.
local function wait_in_line(book, lines, priority, need)
  local turn = math.max(0, lines[priority].latest - book.clock) + need / plan.flow[priority]
  if priority == LOW then turn = turn + (lines[HIGH].units + lines[HIGH].own) / plan.flow[HIGH] end
  local room_in = wait_for_room(keys, book, plan, priority, need)
  return math.max(1, math.ceil(math.max(room_in, math.min(turn, room_in + plan.longest_line_ms))))
end

local book = open_book(keys, plan, now_ms)
local lines, reply = read_lines(book), {}
for n, demand in ipairs(demands) do
  local priority, costs = demand[1], demand[2]
  local count, taken, unmet = longest_prefix(costs, usable(book, plan, lines, priority))
  for _, rule in ipairs(plan.rules) do
    if rule.binds[priority] then spend(keys, book, rule, taken) end
  end
  if priority == LOW then spend(keys, book, plan.floor, math.min(taken, left_of(book, plan.floor))) end
  lines[priority].own = unmet
  local place, wait = priority .. '|' .. owner, 0
  if unmet > 0 then
    local need = math.max(costs[count + 1], math.min(unmet, plan.share[priority]))
    wait = wait_in_line(book, lines, priority, need)
    redis.call('HSET', keys.waiting, place, string.format('%.0f|%.0f|%.0f', unmet, need, book.clock + wait))
    wait = wait + book.clock - now_ms
  else
    redis.call('HDEL', keys.waiting, place)
  end
  reply[n] = {count, wait, book.clock}
end
close_book(keys, book, plan.ttl_ms)
return reply
