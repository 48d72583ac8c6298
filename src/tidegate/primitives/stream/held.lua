-- Which messages a consumer still holds: the others were acknowledged, or given to another.
--
---@key stream    stream
---@arg group     str
---@arg consumer  str
---@arg ids       packed
-- Reply: the ids that it holds; all of them where the server knows no such group, since it lost its data then and gave
-- nothing to others

local held = {}
for _, id in ipairs(ids) do
  local found = redis.pcall('XPENDING', stream, group, id, id, 1, consumer)
  if found.err or #found > 0 then held[#held + 1] = id end
end
return held
