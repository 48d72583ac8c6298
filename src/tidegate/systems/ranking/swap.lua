-- Put the window that was made aside in the place of the one that is read. Repeated, it does nothing.
--
---@key scores        zset  place and member, scored
---@key places        hash  member -> place
---@key aside         zset  the new one
---@key aside_places  hash
---@arg until_ms      int   ms since the epoch: when the window is no longer kept
---@arg now_ms        time
-- Reply: 1 | 0 where there is nothing aside

if redis.call('EXISTS', aside) == 0 then return 0 end
-- What is renamed over is taken apart at once, all of it; what is unlinked, by a thread of its own.
redis.call('UNLINK', scores, places)
redis.call('RENAME', aside, scores)
redis.call('RENAME', aside_places, places)
for _, key in ipairs({scores, places}) do redis.call('PEXPIRE', key, until_ms - now_ms) end
return 1
