-- Places. After the start, the place is the arrival number; before it, a drawn place below all arrival numbers.
local DRAWN, LOWEST = 2 ^ 24, -2 ^ 53

-- 29 bits of a hash, followed by the number: it can be read back, and no two places are equal.
local function drawn_place(seed, number)
  local hash = tonumber(string.sub(redis.sha1hex(seed .. ':' .. string.format('%.0f', number)), 1, 8), 16)
  return LOWEST + math.floor(hash / 8) * DRAWN + number
end

local function number_of(place)
  if place >= 0 then return place end
  return (place - LOWEST) % DRAWN
end
