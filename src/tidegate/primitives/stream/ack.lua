-- Messages are done: acknowledge and delete them.
--
---@key stream  stream  messages
---@arg group   str
---@arg ids     packed  list of message ids
---@include acknowledge_and_delete
-- Reply: how many of them were there
-- An id that was given to another consumer meanwhile is gone, so a late acknowledgement changes nothing.

return acknowledge_and_delete(stream, group, ids)
