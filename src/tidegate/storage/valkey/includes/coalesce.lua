-- Decide which request does the work on a subject: the first one takes its lock; an urgent one takes over a LOW lock.
-- `asked` is {token, urgent (1 or 0), lasts_ms, known_version}. Returns the answer, the version, and whether the question
-- was repeated: the same token, while its lock holds, gets the same answer.
local function coalesce(work, mark, asked, keep_ms, now_ms)
  local token, urgent, lasts_ms, known_version = unpack(asked)
  local version, holder, outcome, held_urgent, held_lasts, held_until =
    unpack(redis.call('HMGET', work, 'version', 'token', 'outcome', 'urgent', 'lasts_ms', 'until_ms'))

  -- A lock older than what the caller has seen comes from data that were restored; it guards nothing.
  local function is_locked()
    if not held_until or tonumber(version) < known_version then
      return false
    end
    if held_until - now_ms > tonumber(held_lasts) then
      -- The clock was set back. The lock holds once more for its time, not for as long as the clock went back.
      held_until = now_ms + held_lasts
      redis.call('HSET', work, 'until_ms', string.format('%.0f', held_until))
    end
    return tonumber(held_until) > now_ms
  end

  local answer = 'published'
  if is_locked() then
    if holder == token then
      return outcome, tonumber(version), true
    end
    if held_urgent == '1' or urgent == 0 then
      return 'already_processing', tonumber(version), false
    end
    answer = 'upgraded'
  end

  -- The mark makes versions grow whatever the clock does; the clock makes them grow when the mark was lost.
  local highest = tonumber(redis.call('GET', mark) or 0)
  local next_version = math.max(highest + 1, known_version + 1, now_ms * 1000)
  local written = string.format('%.0f', next_version)
  redis.call('SET', mark, written)
  redis.call('HSET', work, 'version', written, 'token', token, 'outcome', answer, 'urgent', urgent,
    'lasts_ms', lasts_ms, 'until_ms', string.format('%.0f', now_ms + lasts_ms))
  redis.call('PEXPIRE', work, keep_ms)
  return answer, next_version, false
end
