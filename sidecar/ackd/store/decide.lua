-- apply, part 5: what one operation does to the slot of one offset (core/record/decide.py). If the message's lease is
-- in its origin record, `Origins.settle` (origins.lua) does it.

-- Finishes a message and returns the fence to answer. `repeats`: its lease is from before a rollback, which may have
-- erased a move to the retry topic; so an origin record keeps the ack for a while (`copies.acked`).
local function end_message(verb, offset, fence, reason, s_fence, repeats)
  if verb == Verb.FINISH then
    if reason == Finish.VANISHED then reason = origins().vanished(offset) end
    odd[offset] = now * 8 + reason
  elseif repeats and not origins().lost and not origins().of(offset) then
    s_fence = fence + 1
    origins().acked_as(offset, false, s_fence)
  end
  if offset >= watermark then finish(offset) end
  if E.any and (verb ~= Verb.FINISH or reason ~= Finish.SENT) then E.over[offset] = true end
  return s_fence
end

-- Decides GRANT, a settle, a move of the owner, FINISH or LOOK_UP, and answers it. Returns false, without an answer,
-- if the store lost a chunk. `arg`: milliseconds of a GRANT and a
-- settle, the key of a MOVE_TO_RETRY, the reason of a FINISH, `due_ms` of a PLACE_COPY. `group`: items that get
-- one fence, and `first_s` of a PLACE_COPY.
local function transition(verb, offset, fence, rollback_epoch, attempt, arg, group, counted)
  local page_b, at_b, value, weight = bits_of(offset)
  local at = offset % PAGE_SLOTS
  local page = s_pages[(offset - at) / PAGE_SLOTS] or s_page(offset)
  if any_gone and (b_gone[page_b.c] or s_gone[page.c]) then return false end
  local state, s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first = 0, 0, 0, 0, 0, 0, 0
  local raw = page.d[at]
  if raw then state, s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first = unpack_(SLOT, raw)
  elseif page.data and byte(page.data, at * Size.SLOT + 1) ~= 0 then
    state, s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first = unpack_(SLOT, page.data, at * Size.SLOT + 1)
  end
  local settles = verb >= Verbs.SETTLE_FIRST and verb <= Verbs.SETTLE_LAST
  local over = offset < watermark or value % (weight * 2) >= weight
  local phase, sent, held, late, how = state, state == State.MOVING, 0, 0, nil
  if over then phase, sent, how = rare().over_phase(verb, offset, rollback_epoch ~= h_rollback_epoch and now < repair_until, odd, odd_cleared, BASE)
  elseif state == State.LEASED and when_ms <= now then phase = Phase.EXPIRED end
  if sent and settles or verb == Verb.LOOK_UP and (sent or arg == 1) then
    return origins().settle(verb, offset, fence, rollback_epoch, attempt, arg, counted, over, phase, state, s_attempt, s_fence, when_ms, first, how)
  elseif verb == Verb.GRANT then
    if not over and (phase ~= Phase.READY or now < repair_until) then held = held_grant(phase, when_ms, now, repair_until, grace_until) end
  elseif verb >= Verbs.MOVE_FIRST and verb <= Verbs.MOVE_LAST then
    if verb == Verb.MOVE_TO_RETRY and origins().missing then return false end
    if not over then phase, held = origins().held_move(verb, phase, fence, attempt, arg, s_fence, s_attempt, when_ms) end
  elseif verb == Verb.ACK and phase == Phase.ACKED and rollback_epoch ~= h_rollback_epoch and offset >= E.from and offset < E.to and origins().in_doubt(offset) then
    return Origins.doubted(offset, fence, s_attempt, s_fence, when_ms, first)
  elseif not over and (fence ~= s_fence or rollback_epoch ~= s_rollback_epoch) then
    phase = rare().seen_by(verb, phase, fence, rollback_epoch, s_fence, s_rollback_epoch, h_rollback_epoch, fence_floor, now < repair_until)
  elseif verb == Verb.FINISH and arg == Finish.VANISHED and phase == Phase.MOVING then held = origins().lets_go_ms(offset) end
  local outcome, what = Outcome.HELD, 0
  if held ~= 0 then
    if held < 0 then outcome = Outcome.REFUSED else when_ms = held end
  elseif verb == Verb.LOOK_UP then
    outcome, late = rare().look_outcome(phase)
  elseif settles and phase == Phase.EXPIRED and (verb ~= Verb.EXTEND or counted == 1)
      and rollback_epoch ~= h_rollback_epoch and now < repair_until then
    outcome = Outcome.UNREPAIRED -- a rollback may have erased a move and a claim (`copies.perhaps_claimed`)
  else
    outcome, what = byte(T, (phase * 16 + verb) * 2 + 1, (phase * 16 + verb) * 2 + 2)
  end
  local target = (what - what % 2) / 2
  if what % 2 == 1 then
    late = settles and phase == Phase.EXPIRED and 1 or 0
    if target == State.FINISHED then
      s_fence = end_message(verb, offset, fence, arg, s_fence, rollback_epoch ~= h_rollback_epoch and now < repair_until + Bound.REPEAT_MS)
    else
      if (verb == Verb.GRANT or verb == Verb.MOVE_TO_RETRY) and not fences[group] then
        h_fence, fences[group] = max(h_fence + 1, now_us), max(h_fence + 1, now_us)
      end
      if verb == Verb.GRANT then
        s_attempt, when_ms = math.min(s_attempt + 1, Bound.ATTEMPT_MAX), now + arg
        s_fence, s_rollback_epoch = fences[group], h_rollback_epoch
        if first == 0 then first = floor(now / 1000) end
      elseif verb == Verb.MOVE_TO_RETRY then
        s_fence, s_rollback_epoch = Origins.move(offset, arg, fences[group],
          { state, s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first, 0, 0, 0, 0, 0, 0 }), h_rollback_epoch
      else
        if verb == Verb.EXTEND or verb == Verb.PLACE_COPY then h_fence = max(h_fence, fence) end
        s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first = rare().changed(verb, fence, rollback_epoch, attempt,
          arg, group, counted, s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first, now, h_rollback_epoch)
      end
      state = target
      page.d[at] = pack(SLOT, state, s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first)
      make("s", s_made, lists, page)
      touch(page, at, s_dirty)
    end
  end
  if over or target == State.FINISHED then state = State.FINISHED end
  answer(outcome, state, s_attempt, s_fence, when_ms, first, late, offset)
  return true
end
