-- Make dead letters messages again, as if they were new.
--
---@key stream  stream  messages
---@key dead    stream  dead letters
---@arg ids     packed  list of dead letter ids
---@include replay_dead_letters
-- Reply: how many of them there were

return replay_dead_letters(stream, dead, ids)
