-- Signs of life of many who wait, by their arrival numbers: for a process that holds their connections.
--
---@keyset keys
---@arg numbers   packed  list of arrival numbers
---@arg now_ms    time
---@include room
---@include signs
-- Reply: how many of them wait
-- A number whose owner is gone stays gone: a word of 0 is not written.

local room = read_room(keys)
if not room then return 0 end
local second, touched = math.floor(now_ms / 1000), 0
for _, number in ipairs(numbers) do
  if last_sign(keys, room, number) > 0 then
    set_sign(keys, room, number, second)
    touched = touched + 1
  end
end
return touched
