-- Delete dead letters; their users may enter again.
---@keyset keys
---@arg letters  packed  list of {dead letter id, user or '', number|key or ''}
-- Reply: how many of them were present
-- Their share of the stock is free in the same step, since only messages in a stream count.

local removed = 0
for _, letter in ipairs(letters) do
  if redis.call('XDEL', keys.dead, letter[1]) == 1 then
    removed = removed + 1
    if redis.call('HGET', keys.entries, letter[2]) == letter[3] then redis.call('HDEL', keys.entries, letter[2]) end
  end
end
return removed
