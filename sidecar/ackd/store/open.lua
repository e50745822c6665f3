-- Takes a partition's record for a new owner, or reads it: `create` and `open_record` of core/record/decide.py.
--
-- The answer is a list: the packed header, the previous owner, then pairs of a name and bytes: `k` and the
-- blocked keys, `j` and journal entries from `journal_from` on (if there are any), and each chunk (`s<n>` slots, `b<n>` bits; no bytes = the store lost it).
-- `term` 0: take the record; `create`: 1 = make it if it is absent, 2 = only read it (`peek`).
local META, ARG = KEYS[1], ARGV[1]
local BASE = sub(META, 1, -2)
local OPENED = ">BBBI8I8I8I8I8I4HI8I8I8B"
local term, incarnation, rollback_epoch, jump_ms, grace, create, create_at, journal_from, run, owner =
  unpack_(">I8I8Hi8I8BI8I8Bc0Hc0", ARG)
local cold, hot, previous, h_run = unpack(call("HMGET", META, "c", "h", "o", "r"))
local created = 0

local function refuse(verdict, h_term, previous)
  return { pack(OPENED, verdict, 0, 0, 0, 0, 0, h_term or 0, 0, 0, 0, 0, 0, 0, 0), previous or "" }
end

local peek = create == 2
if not cold then
  if create ~= 1 then return refuse(CallStatus.ABSENT) end
  created = 1
  cold = pack(COLD, Record.LAYOUT, incarnation, 0, 0, rollback_epoch, 0, create_at, 0, 0, 0, 0, 0)
  hot, previous, h_run = pack(HOT, 0, 0, 0, 0, 1), "", run
  -- Leases that a lost store forgot may be below: nobody knows how those were finished (core/record/doubt.py).
  if create_at > 0 then call("HSET", META, "d", pack(">I7I7", 0, create_at)) end
end
if byte(cold) ~= Record.LAYOUT then return refuse(CallStatus.LAYOUT) end
local layout, h_incarnation, h_term, epoch, h_rollback_epoch, fence_floor, watermark, shift_ms, grace_until,
  repair_until, dropped, origin_count = unpack_(COLD, cold)
local version, h_seq, clock_ms, h_fence, journal_next = unpack_(HOT, hot)
if not peek and term ~= 0 and term ~= h_term then return refuse(CallStatus.FENCED, h_term, previous) end

-- In a cluster, reading a key that is moving to another node fails, so it is read before the first write.
local wanted, journal = 0, {}
if journal_from ~= 0 then wanted = math.min(journal_next - journal_from, Bound.JOURNAL_MAX) end
if wanted > 0 then journal = call("LRANGE", BASE .. "j", -wanted, -1) end

-- Another server run means that the store may have gone back in time: set a new rollback epoch for tokens, give
-- grace to leases, and wait for the replays of sidecars.
local store_ms, moved = floor(now_us / 1000), 0
if run ~= h_run then
  moved, h_rollback_epoch = 1, rollback_epoch
  shift_ms = max(shift_ms + jump_ms, 0)
  clock_ms = max(clock_ms, store_ms - shift_ms)
  grace_until, repair_until = clock_ms + grace, clock_ms + Bound.REPAIR_WAIT_MS
end
clock_ms = max(clock_ms, store_ms - shift_ms)
if term == 0 and not peek then
  h_term, h_seq = max(h_term + 1, store_ms), 0
  call("HSET", META, "o", owner)
end
if not peek then
  h_seq, version = h_seq + 1, version + 1
  call("HSET", META, "r", run, "c", pack(COLD, layout, h_incarnation, h_term, epoch, h_rollback_epoch,
    fence_floor, watermark, shift_ms, grace_until, repair_until, dropped, origin_count),
    "h", pack(HOT, version, h_seq, clock_ms, h_fence, journal_next))
end

local answer = { pack(OPENED, CallStatus.OK, created, moved, clock_ms, version, h_incarnation, h_term,
  h_seq, epoch, h_rollback_epoch, watermark, h_fence, journal_next,
  origin_count > 0 and 1 - call("EXISTS", BASE .. "p") or 0), previous }
if origin_count > 0 and call("HEXISTS", BASE .. "p", "k") == 1 then
  local keys = {}
  for _, field in ipairs(call("HKEYS", BASE .. "p")) do
    if byte(field) == 107 and #field > 1 then keys[#keys + 1] = pack(">I6", tonumber(sub(field, 2))) end
  end
  answer[#answer + 1] = "k"
  answer[#answer + 1] = table.concat(keys)
end
if journal[1] then
  answer[#answer + 1] = "j"
  answer[#answer + 1] = table.concat(journal)
end
for _, field in ipairs(call("HKEYS", META)) do
  local kind = sub(field, 1, 1)
  if #field > 1 and (kind == "b"
      or (tonumber(sub(field, 2)) + 1) * Size.SLOTS_CHUNK > watermark) then
    answer[#answer + 1] = field
    answer[#answer + 1] = call("GET", BASE .. field) or ""
  end
end
return answer
