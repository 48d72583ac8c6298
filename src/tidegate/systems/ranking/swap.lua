-- Replace a window by the prepared one. Repeating the call has no effect.
---@key scores        zset  place and member, scored
---@key places        hash  member -> place
---@key aside         zset  the new one
---@key aside_places  hash
---@arg until_ms      int   ms since the epoch: when the window is no longer kept
---@arg now_ms        time
-- Reply: 1 | 0 no window is prepared

if redis.call('EXISTS', aside) == 0 then return 0 end
-- A renamed-over key is freed at once; an unlinked one by a thread of its own.
redis.call('UNLINK', scores, places)
redis.call('RENAME', aside, scores)
redis.call('RENAME', aside_places, places)
for _, key in ipairs({scores, places}) do redis.call('PEXPIRE', key, until_ms - now_ms) end
return 1
