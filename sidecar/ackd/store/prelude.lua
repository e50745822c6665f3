-- Shared by the record's scripts (open.lua and the nine parts of apply): keys, clock, layout of the head.
--
-- A record is one hash, `...:{tag}:m` (META), and keys with the same tag, so that all are on one node:
--   b<n>  string, a bit for each offset from n * 2^15 on, 1 = finished. Always 4096 bytes: a key that the
--         store lost can be told from one that is all zero
--   s<n>  string, a slot (23 bytes) for each offset from n * 2^8 on. Always 256 slots
--   x     sorted set of the offsets that were finished otherwise than by an ack; score = since_ms * 8 + reason
--   p     hash: offset -> origin record, k<key> -> key queue, k -> count of key queues (core/record/copies.py)
--   q     list of closed origin records, oldest first
--   j     list, the journal: settles by sidecars that are not the owner, newest last
--   t     hash: offset -> texts that applications reported (core/record/texts.py)
--   o     sorted set of the offsets in t; score = number of the write
-- Fields of META: c and h = the head (packed below), o = owner, r = server run, b<n> and s<n> = the chunk exists,
-- t = totals of the texts, d = first and end of the offsets that a repair finished (core/record/doubt.py).
--
-- scripts.py replaces names like `Verb.ACK` by numbers. It replaces `In.`, the name of a set and (value) by comparisons
-- of the value with the members of the set.
local call, pack, unpack_ = redis.call, struct.pack, struct.unpack
local floor, max, byte, char, sub = math.floor, math.max, string.byte, string.char, string.sub

-- The head has two parts, so that an ordinary call writes few bytes. Field c changes seldom: layout,
-- incarnation, term, epoch, rollback epoch, fence floor, watermark, clock shift, grace until, repair until, first
-- slot chunk that was not dropped, count of origin records. Field h changes with every call: version, seq,
-- clock, fence, next journal number. Times are milliseconds, fences microseconds of the clock.
local COLD, HOT = ">BI6I7I4HI7I7I6I6I6I7I4", ">I7I7I6I7I7"
-- A slot: state, attempt, releases, fence, rollback epoch, when_ms, first_s.
local SLOT = ">BHBI7HI6I4"
-- A journal entry: offset, outcome, when_ms, fence, attempt.
local JOURNAL = ">I8BI8I8H"

local clock = redis.call("TIME")
local now_us = clock[1] * 1000000 + clock[2]

local function number(value)
  return string.format("%.0f", value)
end

-- Runs a command with a long list, in slices: `unpack` puts all values on Lua's small stack.
local function variadic(command, key, list)
  for first = 1, #list, 1000 do
    call(command, key, unpack(list, first, math.min(first + 999, #list)))
  end
end
