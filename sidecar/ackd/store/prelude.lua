-- Shared by the ledger's scripts: the record's head, the clock, the names of its keys.
--
-- A key is the meta hash, `...:{tag}:m`; all other keys of the record have the same tag:
--   b<n>  bits of finished offsets n * 2^15 ...: always 4096 bytes, so that a missing key shows
--   s<n>  slots of offsets n * 2^8 ...: always 256 * 23 bytes
--   x     zset: offsets finished in another way than by an ack, score = since_ms * 8 + reason
--   p     hash: origin records by offset (core/record/copies.py), key queues (core/record/copies.py); q: list of those that were closed, oldest first
--   j     list: settles by others than the owner, newest last
--   t     hash: texts that workers reported, by offset (core/record/texts.py); o: zset, offset -> order of writing
-- Meta fields: c, h = head (packed below), o = owner, r = server run, b<n> and s<n> = that chunk lives,
-- t = totals of what is in `t`, d = bounds of what is over in an unknown way (core/record/doubt.py).
-- Names like `Verb.ACK` are replaced by numbers when the script is loaded (see scripts.py), `In.` and a set by
-- comparisons with its members.
local call, pack, unpack_ = redis.call, struct.pack, struct.unpack
local floor, max, byte, char, sub = math.floor, math.max, string.byte, string.char, string.sub

-- The head in two parts, so that an ordinary call writes few bytes. Seldom changed, field c: layout,
-- incarnation, term, epoch, rollback epoch, fence floor, watermark, shift, grace until, repair until, first
-- slot chunk that was not dropped, number of origin records. By every call, field h: version, seq, clock, fence, next journal
-- number.
local COLD, HOT = ">BI6I7I4HI7I7I6I6I6I7I4", ">I7I7I6I7I7"
-- state, attempt, releases, fence, rollback epoch, when_ms, first_s
local SLOT = ">BHBI7HI6I4"
local JOURNAL = ">I8BI8I8H"

local clock = redis.call("TIME")
local now_us = clock[1] * 1000000 + clock[2]

local function number(value)
  return string.format("%.0f", value)
end

-- Lua's `unpack` puts everything on a small stack, so long lists go in slices.
local function variadic(command, key, list)
  for first = 1, #list, 1000 do
    call(command, key, unpack(list, first, math.min(first + 999, #list)))
  end
end
