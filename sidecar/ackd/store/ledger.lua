-- apply, part 8: one call. Reads the record's head, refuses a wrong owner, term, server run or layout, decides the
-- operations in order, then writes.
--
-- The script decides on copies in memory and writes only after it can refuse nothing any more (R13). If the server is
-- out of memory, or the hash slot is moving to another node, the first write fails and nothing is written.
--
-- Lua allows a function 60 locals of the functions around it, and `apply` uses all of them: hence no `floor` here.

local function apply(meta_key, ARG, reported) -- tidy: long-function lines=217 -- four functions in its place, made by each flush, cost a call with one item 6 % more
META, BASE = meta_key, sub(meta_key, 1, -2)
local a_term, seq, incarnation, journal_from, run, pos = unpack_(">I8I8I8I8Bc0", ARG)
term = a_term
local count = (#ARG - pos + 1) / Size.OP
local first_b, first_s = "", ""
if count > 0 then
  local offset = unpack_(">I8", ARG, pos + 1)
  first_b = "b" .. (offset - offset % Size.BITS_CHUNK) / Size.BITS_CHUNK
  first_s = "s" .. (offset - offset % Size.SLOTS_CHUNK) / Size.SLOTS_CHUNK
end
local cold, hot, h_run, there_b, there_s, texts, doubt =
  unpack(call("HMGET", META, "c", "h", "r", first_b, first_s, "t", "d"))
lists = { [first_b] = there_b ~= false, [first_s] = there_s ~= false }
E.any = reported ~= nil or texts ~= false
if E.any then E.begin(texts, reported) end

E.from, E.to, E.doubted = 0, 0, false
if doubt then E.from, E.to = unpack_(">I7I7", doubt) end

if not cold then return refuse(CallStatus.ABSENT) end
if byte(cold) ~= Record.LAYOUT then return refuse(CallStatus.LAYOUT) end
local layout, h_incarnation, h_term, shift_ms, origin_count
layout, h_incarnation, h_term, epoch, h_rollback_epoch, fence_floor, watermark, shift_ms, grace_until,
  repair_until, dropped, origin_count = unpack_(COLD, cold)
local version, h_seq, clock_ms, journal_next
version, h_seq, clock_ms, h_fence, journal_next = unpack_(HOT, hot)
if incarnation ~= 0 and incarnation ~= h_incarnation then
  return refuse(CallStatus.ABSENT, h_term, version)
end
if term ~= 0 and term ~= h_term then return refuse(CallStatus.FENCED, h_term, version) end
if term ~= 0 and seq <= h_seq then return refuse(CallStatus.STALE, h_term, version) end
if run ~= h_run then return refuse(CallStatus.MOVED, h_term, version) end

clock_ms = max(clock_ms, (now_us - now_us % 1000) / 1000 - shift_ms)
now = clock_ms

local old_epoch, old_watermark, old_repair, old_dropped = epoch, watermark, repair_until, dropped
local old_rollback_epoch = h_rollback_epoch

local wide = any_busy or count > 16
PAGE_BITS = wide and Size.BITS_CHUNK or 2048
PAGE_SLOTS = wide and Size.SLOTS_CHUNK or 32
any_gone, all_listed = false, false
if next(b_pages) then b_pages = {} end
if next(s_pages) then s_pages = {} end
if next(b_made) then b_made = {} end
if next(s_made) then s_made = {} end
if next(b_gone) then b_gone = {} end
if next(s_gone) then s_gone = {} end
if b_dirty[1] then b_dirty = {} end
if s_dirty[1] then s_dirty = {} end
if next(filled) then filled = {} end
if next(unlisted) then unlisted = {} end
odd_cleared, results = false, {}
if next(odd) then odd = {} end
if odd_gone[1] then odd_gone = {} end
if journal[1] then journal = {} end
if next(fences) then fences = {} end
Origins.used, Origins.count, Origins.before = false, origin_count, origin_count

-- --- decide, in order
for item = 0, count - 1 do
  local verb, offset, fence, rollback_epoch, attempt, arg, group, counted =
    unpack_(OP, ARG, pos + item * Size.OP)
  if verb <= Verbs.SLOT_LAST then
    if not transition(verb, offset, fence, rollback_epoch, attempt, arg, group, counted) then
      return refuse(CallStatus.CHUNK_LOST, h_term, version)
    end
  elseif verb <= Verbs.ORIGIN_LAST then
    if origins().missing then return refuse(CallStatus.CHUNK_LOST, h_term, version) end
    Origins[verb](offset, fence, rollback_epoch, group, arg, counted, attempt)
  else
    local done = false
    if verb == Verb.REPLAY or verb == Verb.RESTORE or not b_gone[b_page(offset).c] then
      done = upkeep[verb](offset, arg, group, rollback_epoch, counted, fence, attempt)
    end
    if not done then return refuse(CallStatus.CHUNK_LOST, h_term, version) end
    results[#results + 1] = pack(RESULT, Outcome.DONE, State.READY, 0, 0, done, 0, 0)
  end
end

-- --- free chunks of slots whose offsets are all finished (`maintenance.free_full_chunks`)
local full = {}
for c, page in pairs(filled) do
  if not page.dead then
    local at = (c * Size.SLOTS_CHUNK % PAGE_BITS) / 8
    local stop = at + Size.SLOTS_CHUNK / 8
    if page.solid and page.solid[c] then at = stop end
    while at < stop and (page.d[at] or page.data and byte(page.data, at + 1) or 0) == 255 do
      at = at + 1
    end
    if at == stop then full[#full + 1] = c end
  end
end
-- One command asks whether they are listed: with sparse offsets most of them never had a slot.
if full[2] and not all_listed then ask_listed("s", full) end
for _, c in ipairs(full) do
  if listed("s" .. c) then
    forget(s_pages, s_made, Size.SLOTS_CHUNK / PAGE_SLOTS, c, lists, unlisted, "s" .. c)
  end
end

-- --- write
-- The field of the head comes first, so that a new record begins with it; its value is filled in below.
local news, fields = {}, { "h", "" }
for c in pairs(b_made) do
  news[#news + 1] = { key = BASE .. "b" .. c, last = Size.BYTES_CHUNK - 1 }
  fields[#fields + 1], fields[#fields + 2] = "b" .. c, "1"
end
for c in pairs(s_made) do
  news[#news + 1] = { key = BASE .. "s" .. c, last = Size.SLOTS_CHUNK * Size.SLOT - 1 }
  fields[#fields + 1], fields[#fields + 2] = "s" .. c, "1"
end
local scores, dead, dead_fields = {}, {}, {}
for offset, score in pairs(odd) do
  if score then scores[#scores + 1], scores[#scores + 2] = number(score), number(offset) end
end
for field in pairs(unlisted) do
  if not lists[field] then
    dead[#dead + 1] = BASE .. field
    dead_fields[#dead_fields + 1] = field
  end
end

-- The journal (R16): calls without a term (settles by other sidecars) append to it, the owner's calls read it.
local flag, entries = 1, ""
if #journal > 0 then
  journal_next = journal_next + #journal
elseif term ~= 0 and journal_from ~= 0 and journal_from ~= journal_next then
  local wanted = journal_next - journal_from
  local found = wanted > 0 and wanted <= Bound.JOURNAL_MAX
    and call("LRANGE", BASE .. "j", -wanted, -1) or {}
  if #found == wanted then entries = table.concat(found) else flag = 0 end
end

-- In a cluster, reading a key that is moving to another node fails, so read all keys before the first write. A server
-- that is out of memory refuses HSET, so that is the first write, but for UNLINK, which frees memory.
if #scores > 0 then call("EXISTS", BASE .. "x") end
if #journal > 0 then call("EXISTS", BASE .. "j") end
local new_origins, old_fields
if Origins.used then
  new_origins, old_fields = {}, {}
  call("EXISTS", BASE .. "p", BASE .. "q")
  for key in pairs(Origins.turned) do
    local line = Origins.lines[key]
    if line then
      new_origins[#new_origins + 1], new_origins[#new_origins + 2] = "k" .. number(key), pack(LINE, unpack(line, 1, 3))
    else
      old_fields[#old_fields + 1] = "k" .. number(key)
    end
  end
  if Origins.keys == 0 then
    old_fields[#old_fields + 1] = "k"
  elseif Origins.keys then
    new_origins[#new_origins + 1], new_origins[#new_origins + 2] = "k", number(Origins.keys)
  end
  for o in pairs(Origins.dirty) do
    local origin = Origins.map[o]
    if origin then
      new_origins[#new_origins + 1], new_origins[#new_origins + 2] = number(o), Origins.packed(origin)
    else
      old_fields[#old_fields + 1] = number(o)
    end
  end
end
if E.any then call("EXISTS", BASE .. "t", BASE .. "o") end
for _, new in ipairs(news) do call("EXISTS", new.key) end

for first = 1, #dead, 1000 do
  call("UNLINK", unpack(dead, first, math.min(first + 999, #dead)))
end
if count > 0 then version = version + 1 end
if term ~= 0 then h_seq = seq end
fields[Fields.HOT] = pack(HOT, version, h_seq, clock_ms, h_fence, journal_next)
if watermark ~= old_watermark or dropped ~= old_dropped or epoch ~= old_epoch
    or repair_until ~= old_repair or Origins.count ~= Origins.before or h_rollback_epoch ~= old_rollback_epoch then
  fields[#fields + 1], fields[#fields + 2] = "c", pack(COLD, layout, h_incarnation, h_term,
    epoch, h_rollback_epoch, fence_floor, watermark, shift_ms, grace_until, repair_until, dropped,
    Origins.count)
end
if E.doubted then fields[#fields + 1], fields[#fields + 2] = "d", pack(">I7I7", E.from, E.to) end
variadic("HSET", META, fields)
variadic("HDEL", META, dead_fields)
for _, new in ipairs(news) do
  call("UNLINK", new.key)
  call("SETRANGE", new.key, new.last, "\0")
end
if odd_cleared then call("UNLINK", BASE .. "x") end
variadic("ZREM", BASE .. "x", odd_gone)
variadic("ZADD", BASE .. "x", scores)
if Origins.used then
  if Origins.gone then call("UNLINK", BASE .. "p", BASE .. "q") end
  variadic("HSET", BASE .. "p", new_origins)
  variadic("HDEL", BASE .. "p", old_fields)
  if Origins.pruned > 0 then call("LTRIM", BASE .. "q", Origins.pruned, -1) end
  variadic("RPUSH", BASE .. "q", Origins.closed)
end
for _, page in ipairs(b_dirty) do
  if not page.dead then save(BASE .. "b" .. page.c, page, 1, 96) end
end
for _, page in ipairs(s_dirty) do
  if not page.dead then save(BASE .. "s" .. page.c, page, Size.SLOT, 5) end
end
if #journal > 0 then
  variadic("RPUSH", BASE .. "j", journal)
  call("LTRIM", BASE .. "j", -Bound.JOURNAL_MAX, -1)
end
if E.any then
  local bits, lost = E.keep(ARG, pos)
  flag = flag + bits
  if lost > 0 then flag, entries = flag + 8, entries .. pack(">I4", lost) end
end

return pack(REPLY, CallStatus.OK, now, version, h_rollback_epoch, epoch, h_term, watermark, journal_next, flag,
  count) .. table.concat(results) .. entries
end

-- --- all calls of a flush, in order; one that fails does not affect the others
local replies, texts = {}, {}
for at = #KEYS + 1, #ARGV do
  local number_, reported = unpack_(">I2c" .. #ARGV[at] - 2, ARGV[at])
  texts[number_] = reported
end
for number_ = 1, #KEYS do
  local ok, reply = pcall(apply, KEYS[number_], ARGV[number_], texts[number_])
  if not ok then
    reply = FAILED .. (type(reply) == "table" and reply.err or tostring(reply))
  end
  replies[number_] = reply
end
return replies
end

return flush()
