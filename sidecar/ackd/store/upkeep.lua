-- apply, part 6: upkeep by the owner (core/record/maintenance.py). The function of each verb returns the number for
-- its result, or false if the store lost a chunk. They are made only if the flush has such a verb.
local upkeep, list_all
if any_busy then
-- Deletes chunk `c` of kind "b" or "s".
local function forget_chunk(kind, c)
  local pages, made, per = b_pages, b_made, Size.BITS_CHUNK / PAGE_BITS
  if kind == "s" then pages, made, per = s_pages, s_made, Size.SLOTS_CHUNK / PAGE_SLOTS end
  if kind == "b" and not made[c] and call("EXISTS", BASE .. "b" .. c) == 0 then
    b_gone[c], any_gone = true, true -- later operations of this call must find that it was lost
  end
  forget(pages, made, per, c, lists, unlisted, kind .. c)
end

-- If a repair (`known` 0) finishes [first, stop), notes that nobody knows how (core/record/doubt.py).
local function doubt(known, first, stop)
  if known == 1 or first >= stop then return end
  if E.to == 0 then E.from, E.to = first, stop end
  E.from, E.to, E.doubted = math.min(E.from, first), max(E.to, stop), true
end

local FULL = string.rep("\255", Size.BYTES_CHUNK)

local function finished(offset)
  local _, _, value, weight = bits_of(offset)
  return value % (weight * 2) >= weight
end

-- Reads all field names of META, so that `lists` has every chunk.
list_all = function()
  if all_listed then return end
  all_listed = true
  for _, field in ipairs(call("HKEYS", META)) do
    if #field > 1 and lists[field] == nil then lists[field] = true end
  end
end

-- Numbers of the listed chunks of a kind from `first` to `last`, in order.
local function chunks(kind, first, last)
  local found = {}
  if last - first <= 64 then
    for c = first, last do found[#found + 1] = c end
    if found[2] and not all_listed then ask_listed(kind, found) end
    local there = {}
    for _, c in ipairs(found) do
      if listed(kind .. c) then there[#there + 1] = c end
    end
    return there
  end
  list_all()
  for field, there in pairs(lists) do
    if there and sub(field, 1, 1) == kind then
      local c = tonumber(sub(field, 2))
      if c >= first and c <= last then found[#found + 1] = c end
    end
  end
  table.sort(found)
  return found
end

-- Sets the bits of [start, stop): they are finished.
local function finish_range(start, stop)
  while start < stop do
    if start % 8 ~= 0 or stop - start < 8 then
      finish(start)
      start = start + 1
    else
      local page = b_page(start)
      local first = (start % PAGE_BITS) / 8
      local bytes = math.min(floor((stop - start) / 8), PAGE_BITS / 8 - first)
      make("b", b_made, lists, page)
      if bytes == Size.BYTES_CHUNK then
        page.data, page.d = FULL, {}
        touch(page, 0, b_dirty)
        touch(page, Size.BYTES_CHUNK - 1, b_dirty)
        page.whole = true
      else
        if bytes < 32 then
          for at = first, first + bytes - 1 do page.d[at] = 255 end
        else
          -- A long run becomes part of `data`: one string costs less than an entry for each byte.
          local data = page.data or string.rep("\0", PAGE_BITS / 8)
          page.data = sub(data, 1, first) .. sub(FULL, 1, bytes) .. sub(data, first + bytes + 1)
          for at in pairs(page.d) do
            if at >= first and at < first + bytes then page.d[at] = nil end
          end
          page.runs = true
        end
        touch(page, first, b_dirty)
        touch(page, first + bytes - 1, b_dirty)
      end
      local from, to = start / Size.SLOTS_CHUNK, (start + bytes * 8) / Size.SLOTS_CHUNK
      for c = floor(from), math.ceil(to) - 1 do
        filled[c] = page
        if c >= from and c + 1 <= to then
          page.solid = page.solid or {}
          page.solid[c] = true
        end
      end
      start = start + bytes * 8
    end
  end
end

-- The packed slot of an offset or nil, its page, its index there.
local function raw_slot(offset)
  local page = s_page(offset)
  local at = offset % PAGE_SLOTS
  local raw = page.d[at]
  if not raw and page.data and byte(page.data, at * Size.SLOT + 1) ~= 0 then
    raw = sub(page.data, at * Size.SLOT + 1, (at + 1) * Size.SLOT)
  end
  return raw, page, at
end

upkeep = {}

upkeep[Verb.GAP] = function(first, stop, reason, _, known)
  doubt(known, first, stop)
  local kept, start = 0, max(first, watermark)
  for c = floor(first / Size.BITS_CHUNK), max(floor(first / Size.BITS_CHUNK),
      floor((stop - 1) / Size.BITS_CHUNK)) do
    if listed("b" .. c) then b_page(c * Size.BITS_CHUNK) end
    if b_gone[c] then return false end
  end
  if start >= stop then return 0 end
  for _, c in ipairs(chunks("s", floor(start / Size.SLOTS_CHUNK), floor((stop - 1) / Size.SLOTS_CHUNK))) do
    s_page(c * Size.SLOTS_CHUNK)
    if s_gone[c] then return false end
    for o = max(start, c * Size.SLOTS_CHUNK), math.min(stop, (c + 1) * Size.SLOTS_CHUNK) - 1 do
      local raw = raw_slot(o)
      if raw and not finished(o) then
        local state, _, _, _, _, when_ms = unpack_(SLOT, raw)
        finish_range(start, o)
        start = o + 1
        if state == State.DEAD or state == State.MOVING or state == State.LEASED and when_ms > now then
          kept = kept + 1
        else
          odd[o] = now * 8 + (reason ~= 0 and reason or Finish.VANISHED)
          if E.any then E.over[o] = true end
          finish(o)
        end
      end
    end
  end
  if reason ~= 0 and stop - first == 1 and start < stop and not finished(start) then
    odd[start] = now * 8 + reason -- a reset may have dropped its slot, so that no ack will finish it
  end
  finish_range(start, stop)
  return kept
end

-- Deletes origin records that were closed `ORIGIN_KEEP_MS` ago, oldest first (`copies.prune`).
local function prune()
  for _ = 1, Bound.PRUNE_MAX do
    if Origins.count == 0 then return end
    if Origins.pruned == #Origins.closing and not Origins.gone then
      local from = Origins.pruned
      for _, entry in ipairs(call("LRANGE", BASE .. "q", from, from + Bound.PRUNE_MAX - 1)) do
        Origins.closing[#Origins.closing + 1] = entry
      end
    end
    local entry = Origins.closing[Origins.pruned + 1]
    if not entry then return end
    local closed_ms, offset = unpack_(">I6I8", entry)
    if closed_ms > now - Bound.ORIGIN_KEEP_MS then return end
    Origins.pruned = Origins.pruned + 1
    local origin = Origins.of(offset)
    if origin and origin[Origin.CLOSED_MS] == closed_ms and origin[Origin.CLAIMED] == 0 and origin[Slot.STATE] == State.LEASED and origin[Slot.WHEN_MS] > now then
      origin[Origin.CLOSED_MS] = now -- its lease still lives (`doubt.replayed`): keep it for another period
      Origins.set(offset, origin)
      Origins.closed[#Origins.closed + 1] = pack(">I6I8", now, offset)
    elseif origin and origin[Origin.CLOSED_MS] == closed_ms then
      Origins.set(offset, false)
      Origins.count = Origins.count - 1
    end
  end
end

upkeep[Verb.ADVANCE] = function(offset, _, _, _, known)
  if Origins.before > 0 and origins().missing then return false end
  doubt(known, watermark, offset)
  watermark = max(watermark, offset)
  if not odd_cleared then
    local oldest = "(" .. number((now - Bound.EXCEPTIONS_KEEP_MS) * 8)
    local found = call("ZRANGEBYSCORE", BASE .. "x", "-inf", oldest, "WITHSCORES", "LIMIT", 0, 5000)
    for at = 1, #found, 2 do
      local o = tonumber(found[at])
      if o < watermark and odd[o] == nil then
        if found[at + 1] % 8 == Finish.SENT and Origins.count > 0 and Origins.of(o) then
          odd[o] = now * 8 + Finish.SENT
        else
          odd[o] = false
          odd_gone[#odd_gone + 1] = found[at]
        end
      end
    end
  end
  if Origins.count > 0 then prune() end
  return 0
end

upkeep[Verb.DROP] = function(offset)
  local limit = math.min(offset, watermark)
  local border = floor(limit / Size.SLOTS_CHUNK)
  if border <= dropped then return 0 end
  dropped = border
  for _, c in ipairs(chunks("s", 0, border - 1)) do forget_chunk("s", c) end
  for _, c in ipairs(chunks("b", 0, floor(limit / Size.BITS_CHUNK) - 1)) do forget_chunk("b", c) end
  return 0
end

-- A sidecar repeats a finish without knowing whether it was an ack (`doubt.replayed`). A living lease goes on in an
-- origin record.
local function replayed(offset)
  doubt(0, offset, offset + 1)
  local raw = raw_slot(offset)
  if not raw or origins().lost or Origins.of(offset) then return end
  local origin = { unpack_(SLOT, raw) }
  if origin[Slot.STATE] == State.LEASED and origin[Slot.WHEN_MS] > now then
    origin[Origin.GENERATION], origin[Origin.COPY_PARTITION], origin[Origin.COPY_OFFSET], origin[Origin.CLOSED_MS], origin[Origin.CLAIMED], origin[Origin.KEY] = origin[Slot.FENCE], 0, 1, now, 0, 0
    Origins.count = Origins.count + 1
    Origins.set(offset, origin)
    Origins.closed[#Origins.closed + 1] = pack(">I6I8", now, offset)
  end
end

upkeep[Verb.REPLAY] = function(offset, what, mark, rollback_epoch, acked, generation)
  if what == ReplayWhat.ALL_ORIGINS then
    origins().clear()
    E.cleared = true
    h_rollback_epoch = rollback_epoch
    return 0
  end
  if what == ReplayWhat.FINISH then
    if mark ~= 0 and mark ~= epoch % Bound.EPOCH_MARKS + 1 then return 0 end
    if acked == 0 and offset >= watermark and not finished(offset) then replayed(offset) end
    local origin = (Origins.count > 0 or generation > 0) and origins().of(offset)
    if generation > (origin and origin[Origin.GENERATION] or fence_floor) and not Origins.lost then
      Origins.acked_as(offset, origin, generation)
      odd[offset] = false
      odd_gone[#odd_gone + 1] = number(offset)
    elseif origin and origin[Slot.STATE] ~= State.FINISHED then
      if acked == 0 then
        odd[offset] = now * 8 + Finish.SENT
      else
        E.over[offset] = true
        odd[offset] = false
        odd_gone[#odd_gone + 1] = number(offset)
        if origin[Origin.CLAIMED] == 0 or generation == origin[Origin.GENERATION] then
          origin[Slot.STATE] = State.FINISHED
          Origins.set(offset, origin)
          Origins.leave(offset, origin)
        end
      end
    else
      E.over[offset] = true
    end
    if offset < watermark then return 0 end
    finish(offset)
    if term == 0 then journal[#journal + 1] = pack(JOURNAL, offset, Outcome.ACKED, 0, 0, 0) end
    return 1
  end
  local page = b_page(offset)
  make("b", b_made, lists, page)
  dropped = 0
  local per = Size.BITS_CHUNK / Size.SLOTS_CHUNK
  for _, c in ipairs(chunks("s", page.c * per, (page.c + 1) * per - 1)) do
    if not s_made[c] and call("EXISTS", BASE .. "s" .. c) == 0 then forget_chunk("s", c) end
  end
  return 0
end

-- Makes an origin record that a rollback erased (`copies.restore`), or renews the one that is there.
local function made_again(offset, before, moved, generation, attempt, flags)
  h_fence = max(h_fence, generation)
  if before and before[Slot.STATE] == State.FINISHED then
    before[Origin.GENERATION] = generation
    Origins.set(offset, before)
    return before
  end
  if before then Origins.leave(offset, before) else Origins.count = Origins.count + 1 end
  local origin = { State.READY, attempt, 0, 0, 0, 0, 0, generation, 0, moved, 0, 0, 0 }
  local raw = moved == 1 and offset >= watermark and not finished(offset) and raw_slot(offset)
  if raw then
    local slot = { unpack_(SLOT, raw) }
    if slot[Slot.STATE] == State.LEASED and slot[Slot.FENCE] < generation and slot[Slot.WHEN_MS] > now then
      for i = 1, 7 do origin[i] = slot[i] end -- a lease that was granted or extended since the rollback goes on here
    end
  end
  local unknown = offset >= E.from and offset < E.to -- so says a successor, which the rollback forgot
  if moved == 1 and flags < MovedFlag.RELEASED and offset >= watermark and finished(offset) and not unknown and (odd[offset] == false
      or odd[offset] == nil and (odd_cleared or not call("ZSCORE", BASE .. "x", number(offset)))) then
    origin[Slot.STATE] = State.FINISHED -- a sidecar repeated the ack earlier than this record
  end
  Origins.set(offset, origin)
  return origin
end

upkeep[Verb.RESTORE] = function(offset, place_or_key, partition_or_flags, rollback_epoch, moved, generation, attempt)
  -- RestoreMoved brings a key and flags, RestoreClaimed its copy's offset + 1 and partition.
  local key, flags = moved * place_or_key, moved * partition_or_flags
  if origins().missing then return false end
  if generation <= fence_floor then return 0 end
  local origin = Origins.of(offset)
  if not origin or origin[Origin.GENERATION] < generation then
    origin = made_again(offset, origin, moved, generation, attempt, flags)
  end
  if origin[Origin.GENERATION] > generation then return 0 end
  if origin[Slot.STATE] == State.FINISHED then E.over[offset] = true end
  if origin[Slot.STATE] ~= State.FINISHED and moved == 0 and origin[Origin.CLAIMED] == 0 then
    origin[Origin.COPY_PARTITION], origin[Origin.COPY_OFFSET], origin[Origin.CLAIMED] = partition_or_flags, place_or_key - 1, 1
    Origins.set(offset, origin)
  elseif origin[Slot.STATE] ~= State.FINISHED and key ~= 0 and origin[Origin.KEY] == 0 and origin[Origin.CLOSED_MS] == 0 then
    Origins.block(offset, origin, key)
    Origins.set(offset, origin)
  end
  local over = offset < watermark or finished(offset)
  if over or moved == 0 or flags % 2 == MovedFlag.STORED then
    if origin[Slot.STATE] ~= State.FINISHED then odd[offset] = now * 8 + Finish.SENT end
    if over then return 0 end
    finish(offset)
    if term == 0 then journal[#journal + 1] = pack(JOURNAL, offset, Outcome.ACKED, 0, 0, 0) end
    return 1
  end
  local raw, page, at = raw_slot(offset)
  if s_gone[page.c] then return false end
  local slot = raw and { unpack_(SLOT, raw) } or { State.READY, 0, 0, 0, 0, 0, 0 }
  if slot[Slot.STATE] ~= State.MOVING or slot[Slot.FENCE] < generation then
    slot[Slot.STATE], slot[Slot.ATTEMPT], slot[Slot.FENCE], slot[Slot.ROLLBACK_EPOCH] = State.MOVING, attempt, generation, rollback_epoch
    page.d[at] = pack(SLOT, unpack(slot, 1, 7))
    make("s", s_made, lists, page)
    touch(page, at, s_dirty)
  end
  return 0
end

upkeep[Verb.RESET] = function(offset, cut_above)
  list_all()
  local cut = cut_above ~= 0 -- the watermark + 1: the log was truncated. Keep what is below the cut, end all leases above it
  local skipped = {} -- messages on their way to the retry topic: nobody will write their copies after a reset
  for _, c in ipairs(chunks("s", 0, 2 ^ 53)) do
    local kept = {}
    local first, last = c * Size.SLOTS_CHUNK, (c + 1) * Size.SLOTS_CHUNK - 1
    if not cut then
      for o = math.max(first, watermark), math.min(last, offset - 1) do
        local raw = raw_slot(o)
        if raw and not finished(o) and unpack_(SLOT, raw) == State.MOVING then skipped[o] = true end
      end
    end
    if cut then last = math.min(last, offset - 1) else first = max(first, offset) end
    for o = first, last do
      local raw = raw_slot(o)
      if raw and o >= watermark and not finished(o) then
        local state, _, _, _, _, when_ms = unpack_(SLOT, raw)
        if cut or (state == State.LEASED and when_ms > now) then kept[o] = raw end
      end
    end
    forget_chunk("s", c)
    for o, raw in pairs(kept) do
      local page = s_page(o)
      make("s", s_made, lists, page)
      page.d[o % PAGE_SLOTS] = raw
      touch(page, o % PAGE_SLOTS, s_dirty)
    end
  end
  for _, c in ipairs(chunks("b", 0, 2 ^ 53)) do forget_chunk("b", c) end
  epoch, fence_floor, watermark, dropped = epoch + 1, h_fence, cut and cut_above - 1 or offset, 0
  if not cut then E.doubted, E.from, E.to = E.doubted or E.to > 0, 0, 0 end
  odd, odd_gone, odd_cleared = {}, {}, true
  E.cleared = true
  if Origins.count > 0 then
    local found = origins().gone and {} or call("HKEYS", BASE .. "p")
    for _, field in ipairs(found) do
      if byte(field) ~= 107 then Origins.of(tonumber(field)) end -- 107 = `k`, a key queue
    end
    Origins.count = 0
    for o, origin in pairs(Origins.map) do
      if origin and skipped[o] and origin[Origin.CLAIMED] == 0 then
        Origins.leave(o, origin)
        Origins.set(o, false)
      elseif origin and o >= offset then
        if not cut and origin[Slot.STATE] == State.LEASED and origin[Slot.WHEN_MS] > now and origin[Origin.CLAIMED] == 0 then
          local page = s_page(o)
          make("s", s_made, lists, page)
          page.d[o % PAGE_SLOTS] = pack(SLOT, unpack(origin, 1, 7))
          touch(page, o % PAGE_SLOTS, s_dirty)
        end
        Origins.leave(o, origin)
        Origins.set(o, false)
      elseif origin then
        Origins.count = Origins.count + 1
        if origin[Slot.STATE] ~= State.FINISHED then odd[o] = now * 8 + Finish.SENT end
      end
    end
    if Origins.count == 0 then Origins.clear() end
  end
  return 0
end

upkeep[Verb.SETTLED] = function()
  repair_until = 0
  return 0
end
end
