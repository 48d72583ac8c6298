-- Signs of life of many who wait, by their arrival numbers: for a process that holds their connections.
--
---@key book        hash    the room's rules and counters
---@key waiting     zset    user scored by place
---@key entering    zset    user scored by when somebody else settles it, ms
---@key entries     hash    user -> admission|place|last sign of life
---@key active      zset    user scored by the end of the session, ms
---@key admissions  hash    user -> admission
---@key guests      set     those who came in beside the capacity
---@key seen        string  signs of life
---@key chunks      zset    when to look for the silent, ms
---@key log         stream  every step
---@key moves       stream  the last steps by which the line got shorter
---@key wake        list    at most one token
---@arg numbers   packed  list of arrival numbers
---@arg now_ms    time
---@include room
---@include signs
-- Reply: how many of them wait
-- A number whose owner is gone stays gone: a word of 0 is not written.

local room = read_book()
if not room then return 0 end
local second, touched = math.floor(now_ms / 1000), 0
for _, number in ipairs(numbers) do
  if last_sign(room, number) > 0 then
    set_sign(room, number, second)
    touched = touched + 1
  end
end
return touched
