-- How much one priority may take now, and when there will be more.
---@include book
local HIGH, LOW = 1, 2
local PLENTY = 1e15

local function lesser_left(book, rules, applies)
  local least = PLENTY
  for _, rule in ipairs(rules) do
    if applies(rule.binds) then least = math.min(least, left_of(book, rule)) end
  end
  return least
end

-- What every rule that binds this priority allows.
local function room(book, plan, priority)
  if book.clock < (book.paused_until or 0) then return 0 end
  return math.max(0, lesser_left(book, plan.rules, function(binds) return binds[priority] end))
end

-- What the rules that bind this priority alone allow: no more need be kept for it out of what is shared.
local function private_room(book, plan, priority)
  return math.max(0, lesser_left(book, plan.rules, function(binds) return binds[priority] and not binds[3 - priority] end))
end

-- HIGH leaves LOW its floor; LOW leaves HIGH all that HIGH waits for, but not the floor. A process that was not waiting
-- leaves what is reserved for waiting processes of its priority.
local function usable(book, plan, lines, priority)
  local all, mine, other = room(book, plan, priority), lines[priority], lines[3 - priority]
  local kept = math.min(other.units + other.own, private_room(book, plan, 3 - priority))
  local floor = left_of(book, plan.floor)
  local allowed = all - math.min(kept, floor)
  if priority == LOW then allowed = math.max(all - kept, math.min(all, floor)) end
  if mine.own == 0 then allowed = allowed - mine.reserved end
  return math.max(0, allowed)
end

-- When enough slots of a window have left it. Slots of all rules lie in one order, so others are passed over.
local function wait_for_window(keys, book, rule, missing)
  local prefix, from, wait = rule.name .. '|', 0, 0
  repeat
    local slots = redis.call('ZRANGE', keys.leaving, from, from + 99, 'WITHSCORES')
    for i = 1, #slots, 2 do
      if string.sub(slots[i], 1, #prefix) == prefix then
        missing = missing - (tonumber(redis.call('HGET', keys.counts, slots[i])) or 0)
        wait = slots[i + 1] - book.clock
        if missing <= 0 then return wait end
      end
    end
    from = from + 100
  until #slots == 0
  return wait
end

-- In how many ms all rules allow `need` units, if no other process takes any.
local function wait_for_room(keys, book, plan, priority, need)
  local wait = math.max(0, (book.paused_until or 0) - book.clock)
  for _, rule in ipairs(plan.rules) do
    local missing = math.min(need, rule.capacity) - rule.capacity + (book['spent|' .. rule.name] or 0)
    if rule.binds[priority] and missing > NEARLY then
      local longer = rule.per_ms and math.ceil(missing / rule.per_ms) or wait_for_window(keys, book, rule, missing)
      wait = math.max(wait, longer)
    end
  end
  return wait
end
