-- All registered processes, ordered by the end of their leases.
--
---@key membership  zset  owner scored by the ms at which its lease ends
---@arg now_ms    time
-- Reply: {{owner, ms until its lease ends, 0 or less when it has}, ...}

local members, found = {}, redis.call('ZRANGE', membership, 0, -1, 'WITHSCORES')
for n = 1, #found, 2 do
  members[#members + 1] = {found[n], tonumber(found[n + 1]) - now_ms}
end
return members
