-- Units spent of each rule, units that processes wait for, and the rest of a pause.
--
---@keyset keys
---@arg plan     packed
---@arg now_ms   time
---@include book
-- Reply: {{spent of each rule, ...}, HIGH units waiting, LOW units waiting, paused_ms}

local book, spent, units = open_book(keys, plan, now_ms), {}, {0, 0}
for n, rule in ipairs(plan.rules) do spent[n] = rule.capacity - left_of(book, rule) end
local flat = redis.call('HGETALL', keys.waiting)
for i = 1, #flat, 2 do
  local priority, due = tonumber(string.sub(flat[i], 1, 1)), string.match(flat[i + 1], '(%d+)$')
  if due + plan.grace_ms >= book.clock then
    units[priority] = units[priority] + string.match(flat[i + 1], '^(%d+)')
  end
end
local paused_ms = math.max(0, (book.paused_until or 0) - book.clock)
close_book(keys, book, plan.ttl_ms)
return {spent, units[1], units[2], paused_ms}
