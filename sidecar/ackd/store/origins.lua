-- apply, part 4: lists that a call fills while it decides its operations, and origin records (core/record/copies.py).

-- --- key `x`: offsets that were finished otherwise than by an ack; offset -> score, or false = to be removed
local odd, odd_gone, odd_cleared = {}, {}, false

-- --- the answer to one operation
local results, journal = {}, {}
local fences = {} -- number of a group of grants -> their common fence

local function answer(outcome, state, attempt, fence, when_ms, first_s_, late, offset)
  results[#results + 1] = pack(RESULT, outcome, state, attempt, fence, when_ms, first_s_, late)
  if term == 0 and In.JOURNALED(outcome) then
    journal[#journal + 1] = pack(JOURNAL, offset, outcome, when_ms, fence, attempt)
  end
end

-- --- origin records (core/record/copies.py)
--
-- All in one table, which `origins()` fills at the first need, as most calls meet no origin record. Its fields:
--   count    origin records now              before   origin records when the call began
--   map      offset -> record, false = none  dirty    offsets of the records to write
--   gone     true = delete all stored ones   missing  the head counts some, but the store lost the key (R14)
--   lost     as `missing`, until an operation of the call forgets them all
--   closed   packed entries to append to key `q`
--   closing  entries that were read from the front of `q`; the first `pruned` of them will be removed
local Origins = { used = false }
--
-- An origin record in a key queue (`line`) also has its key, and offset + 1 of the records before and after it, 0 =
-- none. Field `k<key>` of `p` has a queue: first offset, last offset, count of records. Field `k`: count of queues.
--   lines    key -> queue, false = none      turned   keys of the queues to write
local ORIGIN = SLOT .. "I7I4I8I6B" -- the slot as it was, generation, retry copy (partition, offset), closed_ms, claimed
local KEYED, LINE = ">I6I8I8", ">I8I8I4"

local function make_origins() -- tidy: long-function lines=415 -- it only holds the functions, until the first need; five makers cost a call with one item 6 % more
-- The origin record of an offset, or false.
Origins.of = function(offset)
  local origin = Origins.map[offset]
  if origin == nil then
    local raw = Origins.count > 0 and not Origins.gone and call("HGET", BASE .. "p", number(offset))
    origin = raw and { unpack_(ORIGIN, raw) } or false
    if origin then
      local rest = origin[Origin.KEY]
      origin[Origin.KEY] = 0
      if #raw >= rest then origin[Origin.KEY], origin[Origin.BEFORE], origin[Origin.AFTER] = unpack_(KEYED, raw, rest) end
    end
    Origins.map[offset] = origin
  end
  return origin
end

Origins.set = function(offset, origin)
  Origins.map[offset] = origin
  Origins.dirty[offset] = true
end

Origins.clear = function()
  Origins.map, Origins.dirty, Origins.gone, Origins.count, Origins.lost = {}, {}, true, 0, false
  Origins.closing, Origins.pruned, Origins.closed = {}, 0, {}
  Origins.lines, Origins.turned, Origins.keys = {}, {}, 0
end

Origins.packed = function(origin)
  local raw = pack(ORIGIN, unpack(origin, 1, 12))
  return origin[Origin.KEY] == 0 and raw or raw .. pack(KEYED, origin[Origin.KEY], origin[Origin.BEFORE], origin[Origin.AFTER])
end

-- Moves a message to the retry topic: its lease goes on in this origin record (`copies.send`). Returns the fence of the
-- slot that stays.
Origins.move = function(offset, key, generation, origin)
  local old = Origins.of(offset)
  if old then Origins.leave(offset, old) else Origins.count = Origins.count + 1 end
  origin[Origin.GENERATION], origin[Origin.COPY_OFFSET] = generation, 1
  Origins.set(offset, origin)
  if key ~= 0 then Origins.block(offset, origin, key) end
  return generation
end

-- --- key queues (core/record/copies.py)
-- The queue of a key, or false.
Origins.line = function(key)
  local line = Origins.lines[key]
  if line == nil then
    local raw = Origins.before > 0 and not Origins.gone and call("HGET", BASE .. "p", "k" .. number(key))
    line = raw and { unpack_(LINE, raw) } or false
    Origins.lines[key] = line
  end
  return line
end

-- Sets or removes (`line` = false) the queue of a key; `more`: change of the count of queues.
local function turn(key, line, more)
  if more ~= 0 then
    Origins.keys = (Origins.keys or tonumber(call("HGET", BASE .. "p", "k") or 0)) + more
  end
  Origins.lines[key], Origins.turned[key] = line, true
end

-- Sets the neighbour of a queued record at this side (`Origin.BEFORE` or `AFTER`).
local function tie(offset, side, value)
  local origin = Origins.of(offset)
  origin[side] = value
  Origins.set(offset, origin)
end

-- Puts a record into the queue of its key, at the front or at the end by its offset.
Origins.block = function(offset, origin, key)
  local line = Origins.line(key)
  origin[Origin.KEY], origin[Origin.BEFORE], origin[Origin.AFTER] = key, 0, 0
  if not line then
    turn(key, { offset, offset, 1 }, 1)
  elseif offset < line[Line.FIRST] then
    origin[Origin.AFTER] = line[Line.FIRST] + 1
    tie(line[Line.FIRST], Origin.BEFORE, offset + 1)
    turn(key, { offset, line[Line.LAST], line[Line.COUNT] + 1 }, 0)
  else
    origin[Origin.BEFORE] = line[Line.LAST] + 1
    tie(line[Line.LAST], Origin.AFTER, offset + 1)
    turn(key, { line[Line.FIRST], offset, line[Line.COUNT] + 1 }, 0)
  end
end

-- Takes a record out of the queue of its key; the last one unblocks the key.
Origins.leave = function(offset, origin)
  local key = origin[Origin.KEY]
  if key == 0 then return end
  local line, before, next_ = Origins.line(key), origin[Origin.BEFORE], origin[Origin.AFTER]
  origin[Origin.KEY] = 0
  Origins.set(offset, origin)
  if before ~= 0 then tie(before - 1, Origin.AFTER, next_) end
  if next_ ~= 0 then tie(next_ - 1, Origin.BEFORE, before) end
  if before == 0 and next_ == 0 then
    turn(key, false, -1)
  else
    turn(key, { before == 0 and next_ - 1 or line[Line.FIRST], next_ == 0 and before - 1 or line[Line.LAST],
      line[Line.COUNT] - 1 }, 0)
  end
end

-- Answers that the first message of the queue must finish before this one.
Origins.blocked_by = function(offset, line)
  local first = Origins.of(line[Line.FIRST])
  answer(Outcome.BLOCKED, State.MOVING, 0, line[Line.FIRST], first[Origin.CLAIMED] == 1 and first[Origin.COPY_OFFSET] + 1 or 0,
    first[Origin.CLAIMED] == 1 and first[Origin.COPY_PARTITION] or 0, 0, offset)
end

Origins[Verb.ASK_BLOCKER] = function(offset, _, _, _, key)
  local line = Origins.line(key)
  if line then return Origins.blocked_by(offset, line) end
  answer(Outcome.FINISHED, State.READY, 0, 0, 0, 0, 0, offset)
end

-- Settles or looks up a message whose lease is in its origin record (`copies.settle`). `phase`, `state` and the
-- arguments after them are those of the slot that the message left; they count only if there is no origin record.
Origins.settle = function(verb, offset, fence, rollback_epoch, attempt, for_ms, counted, over, phase, state, s_attempt, s_fence, when_ms, first, how)
  if verb == Verb.LOOK_UP and for_ms == 1 then return Origins.message(offset, over, phase, how, state, s_attempt) end
  local origin = Origins.of(offset)
  if not origin or verb == Verb.LOOK_UP and origin[Origin.CLAIMED] == 1 then
    answer(over and phase == Phase.ACKED and Outcome.UNREPAIRED or Outcome.LOST,
      over and State.FINISHED or state, s_attempt, s_fence, when_ms, first, 0, offset)
    return true
  end
  local there, releases, s_rollback_epoch = over and State.FINISHED or State.MOVING
  state, s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first = unpack(origin, 1, 7)
  local outcome, what, late = nil, 0, 0
  phase = state
  if state == State.FINISHED then
    phase = Phase.ACKED
  elseif state == State.READY or state == State.LEASED and when_ms <= now then
    -- READY: a repair made the record again, without its lease.
    if state == State.LEASED then phase = Phase.EXPIRED end
    if origin[Origin.CLAIMED] == 0 and verb ~= Verb.LOOK_UP and (verb ~= Verb.EXTEND or counted == 1)
        and rollback_epoch ~= h_rollback_epoch and now < repair_until then
      outcome = Outcome.UNREPAIRED -- a rollback may have erased a claim
    end
  end
  if phase ~= Phase.ACKED and (fence ~= s_fence or rollback_epoch ~= s_rollback_epoch) then
    phase = rare().seen_by(verb, phase, fence, rollback_epoch, s_fence, s_rollback_epoch, h_rollback_epoch, fence_floor, now < repair_until)
  end
  if verb == Verb.LOOK_UP then
    outcome, late = rare().look_outcome(phase)
  elseif not outcome then
    outcome, what = byte(T, (phase * 16 + verb) * 2 + 1, (phase * 16 + verb) * 2 + 2)
    if origin[Origin.CLAIMED] == 1 and (what % 2 == 1 or phase == Phase.WAITING or phase == Phase.RELEASED) then
      outcome, what = Outcome.LOST, 0
    end
  end
  local target = (what - what % 2) / 2
  if what % 2 == 1 then
    if phase == Phase.EXPIRED then late = 1 end
    if target == State.FINISHED then
      s_fence = Origins.acked(offset, origin)
    else
      if verb == Verb.EXTEND then h_fence = max(h_fence, fence) end
      s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first = rare().changed(verb, fence, rollback_epoch, attempt,
        for_ms, 0, counted, s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first, now, h_rollback_epoch)
      origin[Slot.STATE], origin[Slot.ATTEMPT], origin[Slot.RELEASES], origin[Slot.FENCE], origin[Slot.ROLLBACK_EPOCH], origin[Slot.WHEN_MS], origin[Slot.FIRST_S] =
        target, s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first
      Origins.set(offset, origin)
    end
  end
  answer(outcome, target == State.FINISHED and target or there, s_attempt, s_fence, when_ms, first, late, offset)
  return true
end

-- Answers where a message is, whoever holds it (`copies.message`). `how`: the reason of `Finish`.
Origins.message = function(offset, over, phase, how, state, attempt)
  local outcome, after, partition = phase == Phase.ACKED and Outcome.ALREADY_ACKED or Outcome.LOST, 0, 0
  if how == Finish.SENT or not over and state == State.MOVING then
    local origin = Origins.of(offset)
    state = State.MOVING
    if origin then attempt = origin[Slot.ATTEMPT] end
    if origin and origin[Origin.CLAIMED] == 0 then
      state = origin[Slot.STATE]
    elseif origin then
      after, partition = origin[Origin.COPY_OFFSET] + 1, origin[Origin.COPY_PARTITION]
    end
  elseif over then
    state = how == Finish.DEAD and State.DEAD or State.FINISHED
  end
  answer(outcome, state, attempt, after, partition, 0, 0, offset)
  return true
end

-- Acks the message of an origin record. The record stays, so that its retry copy learns of the ack when it claims.
-- Returns the fence to answer.
Origins.acked = function(offset, origin)
  origin[Slot.STATE] = State.FINISHED
  Origins.set(offset, origin)
  Origins.leave(offset, origin)
  odd[offset] = false
  odd_gone[#odd_gone + 1] = number(offset)
  if offset >= watermark then finish(offset) end
  if E.any then E.over[offset] = true end
  return origin[Origin.GENERATION]
end

-- Marks a record as closed: nobody needs it but late copies. `prune` (upkeep.lua) deletes it some minutes later.
Origins.close = function(offset, origin)
  if origin[Origin.CLOSED_MS] == 0 then
    origin[Origin.CLOSED_MS] = now
    if E.any then E.over[offset] = true end
    Origins.set(offset, origin)
    Origins.closed[#Origins.closed + 1] = pack(">I6I8", now, offset)
  end
end

-- Makes an origin record that says only that its message is acked (`copies.acked_as`).
Origins.acked_as = function(offset, before, generation)
  if before then Origins.leave(offset, before) else Origins.count = Origins.count + 1 end
  local origin = { State.FINISHED, 0, 0, 0, 0, 0, 0, generation, 0, 0, 0, 0, 0 }
  Origins.close(offset, origin)
end

Origins[Verb.CLOSE] = function(offset, generation, _, partition, place_after)
  local origin = Origins.of(offset)
  if not origin or origin[Origin.CLOSED_MS] ~= 0 then
    origin = false
  elseif place_after ~= 0 then
    if origin[Origin.CLAIMED] == 0 and origin[Origin.GENERATION] == generation then
      origin[Origin.COPY_PARTITION], origin[Origin.COPY_OFFSET], origin[Origin.CLAIMED] = partition, place_after - 1, 1
      Origins.set(offset, origin)
    end
    if origin[Origin.CLAIMED] == 1 and origin[Origin.COPY_PARTITION] == partition and origin[Origin.COPY_OFFSET] == place_after - 1 then
      Origins.leave(offset, origin)
    else
      origin = false
    end
  elseif origin[Origin.GENERATION] ~= generation or origin[Origin.KEY] ~= 0 then
    origin = false
  end
  if origin and (origin[Origin.CLAIMED] == 1 or origin[Slot.STATE] == State.FINISHED) then Origins.close(offset, origin) end
  answer(Outcome.DONE, State.READY, 0, 0, 0, 0, 0, offset)
end

-- The mover of a message says where the copy is stored (`copies.name`).
Origins[Verb.NAME_COPY] = function(offset, generation, _, partition, copy_offset)
  local origin = Origins.of(offset)
  if origin and origin[Origin.CLAIMED] == 0 and origin[Origin.GENERATION] == generation then
    origin[Origin.COPY_PARTITION], origin[Origin.COPY_OFFSET] = partition, copy_offset + 2
    Origins.set(offset, origin)
  end
  answer(Outcome.DONE, State.READY, 0, 0, 0, 0, 0, offset)
end

-- Whether a copy without a valid signature is the one that the origin record knows (`copies.vouch`).
Origins[Verb.VOUCH] = function(offset, generation, _, partition, copy_offset)
  local origin, outcome, at_ms = Origins.of(offset), Outcome.REFUSED, 0
  if not origin then
    outcome = Outcome.LOST
    if now < repair_until then outcome, at_ms = Outcome.HELD, repair_until end
    return answer(outcome, State.READY, 0, 0, at_ms, 0, 0, offset)
  end
  local claimed = origin[Origin.CLAIMED] == 1
  local known = origin[Origin.COPY_OFFSET] - (claimed and 0 or 2)
  if generation ~= origin[Origin.GENERATION] then
    if generation > origin[Origin.GENERATION] and now < repair_until then
      outcome, at_ms = Outcome.HELD, repair_until
    elseif generation > origin[Origin.GENERATION] and not claimed and known == -2 then
      outcome = Outcome.LOST
    end
  elseif claimed or known >= 0 then
    if known == copy_offset and origin[Origin.COPY_PARTITION] == partition then outcome = Outcome.CLAIMED end
  elseif known == -2 or origin[Slot.STATE] == State.FINISHED then
    outcome = Outcome.CLAIMED -- an older build moved it, which signs nothing; or it is acked, and ends with the claim
  elseif now < repair_until then
    outcome, at_ms = Outcome.HELD, repair_until
  elseif offset >= watermark then
    local _, _, value, weight = bits_of(offset)
    if value % (weight * 2) < weight then outcome, at_ms = Outcome.HELD, now + Bound.VOUCH_AGAIN_MS end
  end
  answer(outcome, origin[Slot.STATE], origin[Slot.ATTEMPT], origin[Origin.GENERATION], at_ms, origin[Slot.FIRST_S], 0, offset)
end

-- The answer to the claim of a retry copy without an origin record: outcome, when to ask again, and true if the copy
-- gets a new origin record.
Origins.unknown = function(offset, generation, rollback_epoch, known)
  if generation <= fence_floor then return Outcome.FINISHED, 0 end
  if rollback_epoch == h_rollback_epoch then return known == 1 and Outcome.REFUSED or Outcome.LOST, 0 end
  if now < repair_until then return Outcome.HELD, repair_until end
  if offset >= watermark then
    local _, _, value, weight = bits_of(offset)
    if value % (weight * 2) < weight then return Outcome.HELD, now + Bound.UNKNOWN_AGAIN_MS end
  end
  return Outcome.LOST, 0, true
end

-- Whether a repair finished this offset without knowing how (core/record/doubt.py).
Origins.in_doubt = function(offset)
  return not Origins.lost and not Origins.of(offset)
end

-- The phase that a MARK_DEAD, MOVE_TO_RETRY or PLACE_COPY finds, and when its owner may ask again: 0 = it is decided
-- now, -1 = it is refused.
Origins.held_move = function(verb, phase, fence, attempt, arg, s_fence, s_attempt, when_ms)
  if verb == Verb.MARK_DEAD then
    if fence ~= s_fence then
      phase = Phase.READY -- the slot has another lease: nothing to mark
    elseif s_attempt < attempt then
      return phase, -1
    elseif arg == 1 and phase == Phase.WAITING then
      return phase, 0 -- a copy that nobody ever gets, placed just before
    end
  end
  if phase == Phase.DEAD or phase == Phase.MOVING then return phase, 0 end
  -- Another client's attempts are in a slot without a fence (decide._undelivered).
  local counted = phase == Phase.WAITING and arg ~= 0 and s_fence == 0 and when_ms <= now
  if verb == Verb.MOVE_TO_RETRY and (phase == Phase.READY or counted) then
    -- It was never delivered: it moves only behind others of its blocked key (R19).
    if arg ~= 0 and now < repair_until then return phase, repair_until end
    if arg == 0 or not Origins.line(arg) then phase = Phase.FORGOTTEN end -- the key is not blocked: nothing to move
  elseif phase == Phase.READY or verb == Verb.PLACE_COPY then
    return phase, 0
  elseif now < repair_until then
    return phase, repair_until
  elseif verb == Verb.MARK_DEAD and phase == Phase.EXPIRED and now < grace_until then
    return phase, grace_until
  end
  return phase, 0
end

-- Acks a message that a repair finished without knowing how: from now on it was finished by an ack (`doubt.settle`).
Origins.doubted = function(offset, fence, s_attempt, s_fence, when_ms, first)
  if now < repair_until then
    answer(Outcome.UNREPAIRED, State.FINISHED, s_attempt, s_fence, when_ms, first, 0, offset)
  else
    Origins.acked_as(offset, false, fence + 1)
    answer(Outcome.ACKED, State.FINISHED, s_attempt, fence + 1, when_ms, first, 0, offset)
  end
  return true
end

-- When a retry copy may claim an unclaimed origin record, in ms; 0 = now.
local function held_until(state, when_ms)
  if state == State.DEAD then return 0 end
  if now < repair_until then return repair_until end
  if state ~= State.LEASED then return 0 end
  return when_ms > now and when_ms or now < grace_until and grace_until or 0
end

-- When a message may be finished that the log lost before its copy was stored, in ms; 0 = now (core/record/vanished.py).
Origins.lets_go_ms = function(offset)
  local origin = Origins.of(offset)
  return origin and origin[Origin.CLAIMED] == 0 and held_until(origin[Slot.STATE], origin[Slot.WHEN_MS]) or 0
end

-- The log lost a message before it was copied. Returns the reason of its FINISH (`vanished.finish`).
Origins.vanished = function(offset)
  local origin = Origins.of(offset)
  if not origin or origin[Origin.CLOSED_MS] ~= 0 then return Finish.VANISHED end
  if origin[Origin.CLAIMED] == 1 then return Finish.SENT end
  Origins.leave(offset, origin)
  Origins.close(offset, origin)
  return Finish.VANISHED
end

Origins[Verb.CLAIM] = function(offset, generation, rollback_epoch, partition, copy_offset, known, attempt)
  local origin = Origins.of(offset)
  if not origin then
    local outcome, when_ms, located = Origins.unknown(offset, generation, rollback_epoch, known)
    if located then
      -- The message is now in this copy: make a claimed record, which ends all older leases.
      Origins.count = Origins.count + 1
      Origins.set(offset, { State.READY, attempt, 0, 0, 0, 0, 0, generation, partition, copy_offset, 0, 1, 0 })
      if odd[offset] == false or odd[offset] == nil
          and (odd_cleared or not call("ZSCORE", BASE .. "x", number(offset))) then
        odd[offset] = now * 8 + Finish.SENT
      end
    end
    answer(outcome, State.READY, 0, 0, when_ms, 0, 0, offset)
    return
  end
  local state, outcome, at_ms = origin[Slot.STATE], Outcome.CLAIMED, 0
  if generation > origin[Origin.GENERATION] and state ~= State.FINISHED and now >= repair_until and origin[Origin.CLAIMED] == 0 then
    -- Nobody has claimed it, and the repair has ended: this newer copy counts.
    origin[Origin.GENERATION], origin[Origin.COPY_OFFSET] = generation, math.min(origin[Origin.COPY_OFFSET], 1)
    Origins.set(offset, origin)
  end
  if generation < origin[Origin.GENERATION] or generation > origin[Origin.GENERATION] and state ~= State.FINISHED then
    outcome = generation < origin[Origin.GENERATION] and Outcome.REFUSED or Outcome.LOST
    if outcome == Outcome.LOST and now < repair_until then
      outcome, at_ms = Outcome.HELD, repair_until
    end
  elseif state == State.FINISHED then
    outcome = Outcome.FINISHED
    if generation == origin[Origin.GENERATION] then Origins.close(offset, origin) end
  else
    if origin[Origin.CLAIMED] == 0 then
      local line = origin[Origin.KEY] ~= 0 and Origins.line(origin[Origin.KEY])
      if line and line[Line.FIRST] ~= offset then return Origins.blocked_by(offset, line) end
      at_ms = held_until(state, origin[Slot.WHEN_MS])
      if at_ms ~= 0 then
        outcome = Outcome.HELD
      else
        origin[Origin.COPY_PARTITION], origin[Origin.COPY_OFFSET], origin[Origin.CLAIMED] = partition, copy_offset, 1
        Origins.set(offset, origin)
      end
    end
    if outcome == Outcome.CLAIMED then
      if origin[Origin.COPY_PARTITION] ~= partition or origin[Origin.COPY_OFFSET] ~= copy_offset then
        outcome = Outcome.REFUSED
      elseif state == State.WAITING then
        at_ms = origin[Slot.WHEN_MS]
      end
    end
  end
  answer(outcome, state, origin[Slot.ATTEMPT], origin[Origin.GENERATION], at_ms, origin[Slot.FIRST_S], 0, offset)
end
end

-- `Origins`, made and set for this call at the first need.
local function origins()
  if not Origins.used then
    if not Origins.of then make_origins() end
    Origins.used, Origins.missing = true, Origins.before > 0 and call("EXISTS", BASE .. "p") == 0
    Origins.lost = Origins.missing
    Origins.map, Origins.dirty, Origins.gone, Origins.closing, Origins.pruned, Origins.closed = {}, {}, false, {}, 0, {}
    Origins.lines, Origins.turned, Origins.keys = {}, {}, nil
  end
  return Origins
end
