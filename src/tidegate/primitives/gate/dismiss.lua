-- Take a credential out of its pool. Calls in flight end as they will; jobs that wanted it go to the others.
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
---@arg credential  str
---@arg now_ms      time
---@include open
---@include every_line
-- Reply: jobs that changed lines; call again until it is 0, and only then is it out
-- It is marked first and leaves last, so that whoever dies between two calls leaves nothing in a line that nobody reads.

local state = account(credential)
if not state or state.pool == '' then return 0 end
state.retired, touched[credential] = true, true
local pool, moved = state.pool, 0
for _, bucket in ipairs(buckets_in_line('c:' .. credential)) do
  moved = moved + abandon(credential, pool, bucket)
  want_open(pool, bucket)
end
if moved == 0 then
  local others = {}
  for _, member in ipairs(credentials_of(pool)) do
    if member ~= credential then others[#others + 1] = member end
  end
  set_credentials(pool, others)
  state.pool = ''
  if state.in_flight > 0 then
    state.left = state.left or {}
    state.left[pool] = true
  end
  if state.in_flight == 0 then strike_off(credential) end
end
finish(now_ms)
return moved
