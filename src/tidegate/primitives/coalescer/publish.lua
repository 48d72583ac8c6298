-- Ask for work on many subjects, and add a message to a stream for each that is granted, in one step.
--
---@key mark     string  the highest version that any subject was given
---@key stream   stream  messages
---@keys works   hash    of each subject: version, published; and while locked: token, outcome, urgent, lasts_ms, until_ms
---@arg asked    packed  for each subject: {{token, urgent, lasts_ms, known_version}, fields, text}
---@arg keep_ms  int     how long versions are remembered
---@arg now_ms   time
---@include coalesce
-- Reply: for each {'published', version} | {'upgraded', version} | {'already_processing', version}
-- A message has `fields` (name, value, ..., name), and as its last value `text`, the version and a closing brace: a JSON
-- object without its end.
-- The same tokens again, while their locks hold, get the same answers and add nothing.

local replies = {}
for n, each in ipairs(asked) do
  local question, fields, text = unpack(each)
  local answer, version, repeated = coalesce(works[n], mark, question, keep_ms, now_ms)
  if answer ~= 'already_processing' and not repeated then
    local written = string.format('%.0f', version)
    fields[#fields + 1] = text .. written .. '}'
    redis.call('XADD', stream, '*', unpack(fields))
    -- Older work is obsolete from now on: the message of this one is there.
    redis.call('HSET', works[n], 'published', written)
  end
  replies[n] = {answer, version}
end
return replies
