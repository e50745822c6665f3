-- ledger, 4: what the items share, and origin records (core/record/copies.py).

-- --- offsets that were finished in another way than by an ack
local odd, odd_gone, odd_cleared = {}, {}, false

-- --- one item
local results, journal = {}, {}
local fences = {}

local function answer(outcome, state, attempt, fence, when_ms, first_s_, late, offset)
  results[#results + 1] = pack(RESULT, outcome, state, attempt, fence, when_ms, first_s_, late)
  if term == 0 and (outcome == Outcome.ACKED or outcome == Outcome.RETRYING
      or outcome == Outcome.EXTENDED or outcome == Outcome.DEAD or outcome == Outcome.RELEASED) then
    journal[#journal + 1] = pack(JOURNAL, offset, outcome, when_ms, fence, attempt)
  end
end

-- --- homes (core/record/copies.py)
--
-- In one table, made at the first need: most calls have nothing to do with homes. `count`: how many
-- there are, `before`: there were at the start of the call, `map`: by offset, false = there is none,
-- `dirty`: to be written, `gone`: all that the store has goes, `missing`: the head counts some and
-- their key is gone (R14), `closed`: packed, to be appended to the list of closed ones, `closing`: what
-- was read of that list, `pruned`: so many leave its front.
local H = { used = false }
--
-- A home that stands in the line of its key (core/record/copies.py) has more: the key, and offset + 1 of those
-- before and behind it in the line. A line is a field `k<key>` beside the homes: first, last and how many;
-- `k` counts the lines. `lines`: by key, false = there is none, `turned`: to be written.
local HOME = SLOT .. "I7I4I8I6B" -- the slot as it was, generation, retry copy, closed_ms, claimed
local KEYED, LINE = ">I6I8I8", ">I8I8I4"

local function make_homes() -- tidy: long-function -- it only holds the functions, until the first need
H.of = function(offset)
  local home = H.map[offset]
  if home == nil then
    local raw = H.count > 0 and not H.gone and call("HGET", BASE .. "p", number(offset))
    home = raw and { unpack_(HOME, raw) } or false
    if home then
      local rest = home[Home.KEY]
      home[Home.KEY] = 0
      if #raw >= rest then home[Home.KEY], home[Home.BEFORE], home[Home.AFTER] = unpack_(KEYED, raw, rest) end
    end
    H.map[offset] = home
  end
  return home
end

H.set = function(offset, home)
  H.map[offset] = home
  H.dirty[offset] = true
end

H.clear = function()
  H.map, H.dirty, H.gone, H.count = {}, {}, true, 0
  H.closing, H.pruned, H.closed = {}, 0, {}
  H.lines, H.turned, H.keys = {}, {}, 0
end

H.packed = function(home)
  local raw = pack(HOME, unpack(home, 1, 12))
  return home[Home.KEY] == 0 and raw or raw .. pack(KEYED, home[Home.KEY], home[Home.BEFORE], home[Home.AFTER])
end

-- --- lines of parked keys (core/record/copies.py)
H.line = function(key)
  local line = H.lines[key]
  if line == nil then
    local raw = H.before > 0 and not H.gone and call("HGET", BASE .. "p", "k" .. number(key))
    line = raw and { unpack_(LINE, raw) } or false
    H.lines[key] = line
  end
  return line
end

local function turn(key, line, more)
  if more ~= 0 then
    H.keys = (H.keys or tonumber(call("HGET", BASE .. "p", "k") or 0)) + more
  end
  H.lines[key], H.turned[key] = line, true
end

local function tie(offset, side, value)
  local home = H.of(offset)
  home[side] = value
  H.set(offset, home)
end

H.park = function(offset, home, key)
  local line = H.line(key)
  home[Home.KEY], home[Home.BEFORE], home[Home.AFTER] = key, 0, 0
  if not line then
    turn(key, { offset, offset, 1 }, 1)
  elseif offset < line[Line.FIRST] then
    home[Home.AFTER] = line[Line.FIRST] + 1
    tie(line[Line.FIRST], Home.BEFORE, offset + 1)
    turn(key, { offset, line[Line.LAST], line[Line.COUNT] + 1 }, 0)
  else
    home[Home.BEFORE] = line[Line.LAST] + 1
    tie(line[Line.LAST], Home.AFTER, offset + 1)
    turn(key, { line[Line.FIRST], offset, line[Line.COUNT] + 1 }, 0)
  end
end

H.leave = function(offset, home)
  local key = home[Home.KEY]
  if key == 0 then return end
  local line, before, next_ = H.line(key), home[Home.BEFORE], home[Home.AFTER]
  home[Home.KEY] = 0
  H.set(offset, home)
  if before ~= 0 then tie(before - 1, Home.AFTER, next_) end
  if next_ ~= 0 then tie(next_ - 1, Home.BEFORE, before) end
  if before == 0 and next_ == 0 then
    turn(key, false, -1)
  else
    turn(key, { before == 0 and next_ - 1 or line[Line.FIRST], next_ == 0 and before - 1 or line[Line.LAST],
      line[Line.COUNT] - 1 }, 0)
  end
end

local function behind(offset, line)
  local first = H.of(line[Line.FIRST])
  answer(Outcome.BEHIND, State.SENDING, 0, line[Line.FIRST], first[Home.CLAIMED] == 1 and first[Home.COPY_OFFSET] + 1 or 0,
    first[Home.CLAIMED] == 1 and first[Home.COPY_PARTITION] or 0, 0, offset)
end

H[Verb.HEAD] = function(offset, _, _, _, key)
  local line = H.line(key)
  if line then return behind(offset, line) end
  answer(Outcome.FINISHED, State.READY, 0, 0, 0, 0, 0, offset)
end

H.close = function(offset, home)
  if home[Home.CLOSED_MS] == 0 then
    home[Home.CLOSED_MS] = now
    if E.any then E.over[offset] = true end
    H.set(offset, home)
    H.closed[#H.closed + 1] = pack(">I6I8", now, offset)
  end
end

-- A home that is nothing but the word that its message is acked (`home.acked`, `home.replayed`).
H.acked_as = function(offset, before, generation)
  if before then H.leave(offset, before) else H.count = H.count + 1 end
  local home = { State.FINISHED, 0, 0, 0, 0, 0, 0, generation, 0, 0, 0, 0, 0 }
  H.close(offset, home)
end

H[Verb.CLOSE] = function(offset, fence, _, partition, arg)
  local home = H.of(offset)
  if not home or home[Home.CLOSED_MS] ~= 0 then
    home = false
  elseif arg ~= 0 then
    if home[Home.CLAIMED] == 0 and home[Home.GENERATION] == fence then
      home[Home.COPY_PARTITION], home[Home.COPY_OFFSET], home[Home.CLAIMED] = partition, arg - 1, 1
      H.set(offset, home)
    end
    if home[Home.CLAIMED] == 1 and home[Home.COPY_PARTITION] == partition and home[Home.COPY_OFFSET] == arg - 1 then
      H.leave(offset, home)
    else
      home = false
    end
  elseif home[Home.GENERATION] ~= fence or home[Home.KEY] ~= 0 then
    home = false
  end
  if home and (home[Home.CLAIMED] == 1 or home[Slot.STATE] == State.FINISHED) then H.close(offset, home) end
  answer(Outcome.DONE, State.READY, 0, 0, 0, 0, 0, offset)
end

-- What is answered about a retry copy without a home.
local function unknown(offset, fence, rollback_epoch, counted)
  if fence <= fence_floor then return Outcome.FINISHED, 0 end
  if rollback_epoch == h_rollback_epoch then return counted == 1 and Outcome.REFUSED or Outcome.LOST, 0 end
  if now < repair_until then return Outcome.HELD, repair_until end
  if offset >= watermark then
    local _, _, value, weight = bits_of(offset)
    if value % (weight * 2) < weight then return Outcome.HELD, now + Bound.UNKNOWN_AGAIN_MS end
  end
  return Outcome.LOST, 0, true
end

-- When a retry copy may ask again for an unclaimed home; 0 = now.
local function held_until(state, when_ms)
  if state == State.DEAD then return 0 end
  if now < repair_until then return repair_until end
  if state ~= State.LEASED then return 0 end
  return when_ms > now and when_ms or now < grace_until and grace_until or 0
end

H[Verb.CLAIM] = function(offset, fence, rollback_epoch, partition, place, counted, attempt)
  local home = H.of(offset)
  if not home then
    local outcome, when_ms, known = unknown(offset, fence, rollback_epoch, counted)
    if known then
      -- From here on it is known where the message is: leases of before are over.
      H.count = H.count + 1
      H.set(offset, { State.READY, attempt, 0, 0, 0, 0, 0, fence, partition, place, 0, 1, 0 })
      if odd[offset] == false or odd[offset] == nil
          and (odd_cleared or not call("ZSCORE", BASE .. "x", number(offset))) then
        odd[offset] = now * 8 + Finish.SENT
      end
    end
    answer(outcome, State.READY, 0, 0, when_ms, 0, 0, offset)
    return
  end
  local state, outcome, told = home[Slot.STATE], Outcome.CLAIMED, 0
  if fence > home[Home.GENERATION] and state ~= State.FINISHED and now >= repair_until and home[Home.CLAIMED] == 0 then
    home[Home.GENERATION] = fence -- no other copy has it, and nobody else will ask for its lease
    H.set(offset, home)
  end
  if fence < home[Home.GENERATION] or fence > home[Home.GENERATION] and state ~= State.FINISHED then
    outcome = fence < home[Home.GENERATION] and Outcome.REFUSED or Outcome.LOST
    if outcome == Outcome.LOST and now < repair_until then
      outcome, told = Outcome.HELD, repair_until
    end
  elseif state == State.FINISHED then
    outcome = Outcome.FINISHED
    if fence == home[Home.GENERATION] then H.close(offset, home) end
  else
    if home[Home.CLAIMED] == 0 then
      local line = home[Home.KEY] ~= 0 and H.line(home[Home.KEY])
      if line and line[Line.FIRST] ~= offset then return behind(offset, line) end
      told = held_until(state, home[Slot.WHEN_MS])
      if told ~= 0 then
        outcome = Outcome.HELD
      else
        home[Home.COPY_PARTITION], home[Home.COPY_OFFSET], home[Home.CLAIMED] = partition, place, 1
        H.set(offset, home)
      end
    end
    if outcome == Outcome.CLAIMED then
      if home[Home.COPY_PARTITION] ~= partition or home[Home.COPY_OFFSET] ~= place then
        outcome = Outcome.REFUSED
      elseif state == State.WAITING then
        told = home[Slot.WHEN_MS]
      end
    end
  end
  answer(outcome, state, home[Slot.ATTEMPT], home[Home.GENERATION], told, home[Slot.FIRST_S], 0, offset)
end
end

local function homes()
  if not H.used then
    if not H.of then make_homes() end
    H.used, H.missing = true, H.before > 0 and call("EXISTS", BASE .. "p") == 0
    H.map, H.dirty, H.gone, H.closing, H.pruned, H.closed = {}, {}, false, {}, 0, {}
    H.lines, H.turned, H.keys = {}, {}, nil
  end
  return H
end
