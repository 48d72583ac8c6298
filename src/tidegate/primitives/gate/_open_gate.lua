-- The state of one script call: what was read, and what has to be written at the end.

-- Every function of the gate takes this table. States are read once per call and written once, by `close_gate`.
local function open_gate(keys, now_ms)
  return {
    keys = keys, now = now_ms,
    -- _credentials.lua: field -> state (false: there is none), fields to write, pool -> names of its credentials
    states = {}, changed = {}, members = {},
    -- _pace.lua: field -> pace (false: there is none), paces to write, permits of requests that were not sent
    paces = {}, changed_paces = {}, unused = {},
    -- _queues.lua: field -> {turn, jobs}, record -> its two turns, ZADD and HSET arguments, owner -> its excluded queues
    turns = {}, turns_of = {}, arrivals = {}, records = {}, exclusion_queues = {},
    -- _queues.lua: number -> its digits
    digits = {},
    -- _starved.lua: pool -> its starved buckets, pool -> its idle credentials
    starved = {}, idle = {},
    -- _dispatch.lua: buckets to dispatch and those done; pools with a call that ended, or without a free credential
    requested = {}, visited = {}, requested_all = {}, freed = {}, busy = {},
    -- _dispatch.lua: jobs dispatched, and the HSET arguments for `permits` and `jobs`
    dispatched = 0, granted = {}, dispatched_jobs = {},
  }
end
