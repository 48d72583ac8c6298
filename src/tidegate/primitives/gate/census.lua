-- Count credentials that may make no call at present: blocked ones, and each bucket of the others that
-- is blocked or exhausted; and find when the last of them may again. One page.
--
---@key waiting     zset    line|class|turn|job
---@key lanes       hash    turns of pools and runs
---@key inside      hash    job -> record or permit
---@key permits     hash    permit -> credential|bucket|cost|job
---@key allowances  hash    credential or credential|bucket -> its state
---@key pools       hash    pool -> credentials
---@key due         zset    what happens later
---@key stream      stream  jobs that may run
---@key wake        list    the timekeeper's doorbell
---@arg cursor  str
---@arg now_ms  time
---@include capacity
-- Reply: {next cursor, '0' at the end; blocked; in how many ms the last of them opens, 0 where there is none}

local blocked, last = 0, now_ms
local function count(opens_at)
  blocked, last = blocked + 1, math.max(last, opens_at)
end
local page = redis.call('HSCAN', allowances, cursor, 'COUNT', 500)
for n = 1, #page[2], 2 do
  local owner = string.match(page[2][n], '^(.*)|')
  if owner then
    local state, book = account(owner), cmsgpack.unpack(page[2][n + 1])
    if state and state.blocked_until <= now_ms and (book.blocked_until or 0) > now_ms then
      count(book.blocked_until)
    elseif book.limit and state and state.blocked_until <= now_ms then
      local is_open = not book.resets_at or book.resets_at <= now_ms
      local left = book.remaining - book.held - book.lost - floor_of(state, book.limit)
      if left <= 0 and not is_open then count(book.resets_at) end
    end
  else
    local opens_at = cmsgpack.unpack(page[2][n + 1]).blocked_until
    if opens_at > now_ms then count(opens_at) end
  end
end
return {page[1], blocked, last - now_ms}
