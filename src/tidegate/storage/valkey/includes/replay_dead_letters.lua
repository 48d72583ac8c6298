-- Make dead letters messages again, as if they were new. Returns how many of them there were.
-- A letter leaves in the step in which its message enters, so it is replayed once.
local function replay_dead_letters(stream, dead, ids)
  local replayed = 0
  for _, id in ipairs(ids) do
    local letter = redis.call('XRANGE', dead, id, id)[1]
    if letter then
      local fields = {}
      for n = 1, #letter[2], 2 do
        if string.sub(letter[2][n], 1, 5) ~= 'dead.' then
          fields[#fields + 1] = letter[2][n]
          fields[#fields + 1] = letter[2][n + 1]
        end
      end
      redis.call('XADD', stream, '*', unpack(fields))
      redis.call('XDEL', dead, id)
      replayed = replayed + 1
    end
  end
  return replayed
end
