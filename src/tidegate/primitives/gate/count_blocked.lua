-- Count credentials that may make no call at present: blocked ones, and each bucket of the others that is blocked or
-- exhausted. Find when the last of them may again. One page.
--
---@keyset keys
---@arg cursor  str
---@arg now_ms  time
---@include open_gate
---@include capacity
-- Reply: {next cursor, '0' at the end; blocked; in how many ms the last of them may call again, 0 where there is none}

-- Until when a bucket of a credential may make no call, by itself; nil where it may.
local function closed_until(state, allowance)
  if not state or state.blocked_until > now_ms then return nil end
  if (allowance.blocked_until or 0) > now_ms then return allowance.blocked_until end
  if not allowance.limit or not allowance.resets_at or allowance.resets_at <= now_ms then return nil end
  local left = allowance.remaining - allowance.held - allowance.lost - floor_of(state, allowance.limit)
  return left <= 0 and allowance.resets_at or nil
end

local gate = open_gate(keys, now_ms)
local blocked, last = 0, now_ms
local page = redis.call('HSCAN', keys.credentials, cursor, 'COUNT', 500)
for n = 1, #page[2], 2 do
  local owner, state = string.match(page[2][n], '^(.*)|'), cmsgpack.unpack(page[2][n + 1])
  local till = nil
  if owner then
    till = closed_until(read_state(gate, owner), state)
  elseif state.blocked_until > now_ms then
    till = state.blocked_until
  end
  if till then blocked, last = blocked + 1, math.max(last, till) end
end
return {page[1], blocked, last - now_ms}
