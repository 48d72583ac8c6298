-- Ask for work on a subject: the first takes its lock; an urgent request takes over a lock that is not urgent.
--
---@key work           hash    version, published; and while locked: token, outcome, urgent, lasts_ms, until_ms
---@key mark           string  the highest version that any subject was given
---@arg token          str
---@arg urgent         int     1 or 0
---@arg lasts_ms       int     how long the lock holds unless it is released
---@arg keep_ms        int     how long the version is remembered
---@arg known_version  int     one the caller has seen, should this server have lost its data; else 0
---@arg now_ms         time
---@include coalesce
-- Reply: {'published', version} | {'upgraded', version} | {'already_processing', version}
-- The same token again, while its lock holds, gets the same answer: a caller that lost the reply may ask again.

local answer, version = coalesce(work, mark, {token, urgent, lasts_ms, known_version}, keep_ms, now_ms)
return {answer, version}
