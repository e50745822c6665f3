-- ledger, 5: what a grant, a settle or a look does to one offset.

-- GRANT, the settles, FINISH and LOOK_UP; false when a chunk is lost.
local function transition(verb, offset, fence, rollback_epoch, attempt, arg, group, counted) -- tidy: long-function -- the hot path; each function that is made here costs every flush
  local page_b, at_b, value, weight = bits_of(offset)
  local at = offset % PAGE_SLOTS
  local page = s_pages[(offset - at) / PAGE_SLOTS] or s_page(offset)
  if any_gone and (b_gone[page_b.c] or s_gone[page.c]) then return false end
  local over = offset < watermark or value % (weight * 2) >= weight
  local state, s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first = 0, 0, 0, 0, 0, 0, 0
  local raw = page.d[at]
  if raw then
    state, s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first = unpack_(SLOT, raw)
  elseif page.data and byte(page.data, at * Size.SLOT + 1) ~= 0 then
    state, s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first =
      unpack_(SLOT, page.data, at * Size.SLOT + 1)
  end
  local phase, origin, sent = state, false, state == State.SENDING
  if over then
    local score = odd[offset]
    if score == nil then
      score = not odd_cleared and call("ZSCORE", BASE .. "x", number(offset))
    end
    phase, sent = Phase.ACKED, false
    if score then
      phase, sent = Phase.GONE, score % 8 == Finish.SENT
    elseif verb > Verb.ACK and verb <= Verbs.SETTLE_LAST and rollback_epoch ~= h_rollback_epoch and now < repair_until then
      sent = true -- perhaps: its origin record may have to be restored yet (`origin.decides`)
    end
  elseif state == State.LEASED and when_ms <= now then
    phase = Phase.EXPIRED
  end
  if sent and (verb >= Verbs.SETTLE_FIRST and verb <= Verbs.SETTLE_LAST or verb == Verb.LOOK_UP) then
    -- From here on the origin record is the slot (`origin.settle`).
    origin = origins().of(offset)
    if not origin or verb == Verb.LOOK_UP and origin[Origin.CLAIMED] == 1 then
      answer(over and phase == Phase.ACKED and Outcome.UNREPAIRED or Outcome.LOST,
        over and State.FINISHED or state, s_attempt, s_fence, when_ms, first, 0, offset)
      return true
    end
    state, s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first = unpack(origin, 1, 7)
    phase = state
    if state == State.FINISHED then
      phase = Phase.ACKED
    elseif state == State.READY or state == State.LEASED and when_ms <= now then
      -- READY: made again, without its lease.
      if state == State.LEASED then phase = Phase.EXPIRED end
      if origin[Origin.CLAIMED] == 0 and verb ~= Verb.LOOK_UP and (verb ~= Verb.EXTEND or counted == 1)
          and rollback_epoch ~= h_rollback_epoch and now < repair_until then
        -- Its copy was perhaps claimed, and a rollback forgot that (`origin.settle`).
        answer(Outcome.UNREPAIRED, over and State.FINISHED or State.SENDING, s_attempt, s_fence,
          when_ms, first, 0, offset)
        return true
      end
    end
  end
  if verb == Verb.ACK and phase == Phase.ACKED and not origin and rollback_epoch ~= h_rollback_epoch
      and offset >= E.from and offset < E.to and not origins().missing and not Origins.of(offset) then
    -- Over, and nobody knows how: it becomes an ack (`doubt.settle`).
    if now < repair_until then
      answer(Outcome.UNREPAIRED, State.FINISHED, s_attempt, s_fence, when_ms, first, 0, offset)
    else
      Origins.acked_as(offset, false, fence + 1)
      answer(Outcome.ACKED, State.FINISHED, s_attempt, fence + 1, when_ms, first, 0, offset)
    end
    return true
  end
  if verb == Verb.GRANT or verb >= Verbs.MOVE_FIRST and verb <= Verbs.MOVE_LAST then
    local held = 0
    if verb ~= Verb.GRANT then
      if verb == Verb.MOVE_TO_RETRY and origins().missing then return false end
      if verb == Verb.MARK_DEAD and not over then
        if fence ~= s_fence then
          phase = Phase.READY -- as if there were nothing to mark
        elseif s_attempt < attempt then
          answer(Outcome.REFUSED, state, s_attempt, s_fence, when_ms, first, 0, offset)
          return true
        end
      end
    end
    if over or phase == Phase.DEAD or phase == Phase.SENDING then
      held = 0
    elseif verb ~= Verb.GRANT then
      if verb == Verb.MOVE_TO_RETRY and phase == Phase.READY then
        -- Never handed out: it goes only behind others of its key (R19).
        if arg ~= 0 and now < repair_until then
          held = repair_until
        elseif arg == 0 or not Origins.line(arg) then
          phase = Phase.FORGOTTEN -- as if there were nothing to send
        end
      elseif phase == Phase.READY or verb == Verb.PLACE_COPY then
        held = 0
      elseif now < repair_until then
        held = repair_until
      elseif verb == Verb.MARK_DEAD and phase == Phase.EXPIRED and now < grace_until then
        held = grace_until
      end
    elseif now < repair_until then
      held = repair_until
    elseif phase == Phase.EXPIRED and now < grace_until then
      held = grace_until
    elseif phase == Phase.LEASED or phase == Phase.WAITING and when_ms > now then
      held = when_ms
    end
    if held ~= 0 then
      answer(Outcome.HELD, state, s_attempt, s_fence, held, first, 0, offset)
      return true
    end
  elseif (not over or origin) and phase ~= Phase.ACKED and (fence ~= s_fence or rollback_epoch ~= s_rollback_epoch) then
    -- Another token. The newest one there is counts when the store forgot its grant (R9): then it
    -- has the larger fence, and the slot was not granted after the last possible rollback.
    if phase ~= Phase.DEAD and fence > s_fence and fence > fence_floor
        and not (phase == Phase.LEASED and s_rollback_epoch == h_rollback_epoch and rollback_epoch ~= h_rollback_epoch) then
      phase = now < repair_until and Phase.FORGOTTEN
        or verb == Verb.LOOK_UP and Phase.GONE or Phase.EXPIRED
    else
      -- (For a FINISH as if there were nothing to finish: it is not over.)
      phase = verb == Verb.FINISH and Phase.READY or Phase.GONE
    end
  end
  if verb == Verb.LOOK_UP then
    local outcome = Outcome.LOST
    if phase == Phase.ACKED then
      outcome = Outcome.ALREADY_ACKED
    elseif phase == Phase.LEASED or phase == Phase.EXPIRED then
      outcome = Outcome.HELD
    elseif phase == Phase.WAITING then
      outcome = Outcome.RETRYING
    elseif phase == Phase.RELEASED then
      outcome = Outcome.RELEASED
    elseif phase == Phase.DEAD then
      outcome = Outcome.DEAD
    elseif phase == Phase.FORGOTTEN then
      outcome = Outcome.UNREPAIRED
    end
    answer(outcome, over and State.FINISHED or origin and State.SENDING or state, s_attempt, s_fence,
      when_ms, first, phase == Phase.EXPIRED and 1 or 0, offset)
    return true
  end
  if phase == Phase.EXPIRED and not origin and verb >= Verbs.SETTLE_FIRST and verb <= Verbs.SETTLE_LAST
      and (verb ~= Verb.EXTEND or counted == 1) and rollback_epoch ~= h_rollback_epoch and now < repair_until then
    -- It was perhaps sent back and claimed, and a rollback forgot that (`origin.perhaps_claimed`).
    answer(Outcome.UNREPAIRED, state, s_attempt, s_fence, when_ms, first, 0, offset)
    return true
  end
  local outcome, what = byte(T, (phase * 16 + verb) * 2 + 1, (phase * 16 + verb) * 2 + 2)
  if origin and origin[Origin.CLAIMED] == 1 and (what % 2 == 1 or phase == Phase.WAITING or phase == Phase.RELEASED) then
    outcome, what = Outcome.LOST, 0
  end
  local target = (what - what % 2) / 2
  local late = 0
  if what % 2 == 1 then
    if phase == Phase.EXPIRED and verb >= Verbs.SETTLE_FIRST and verb <= Verbs.SETTLE_LAST then late = 1 end
    if target == State.FINISHED then
      if verb == Verb.FINISH then odd[offset] = now * 8 + arg end
      if origin then
        -- An ack like any other from here on; only the retry copy still has to be told.
        origin[Slot.STATE], s_fence = State.FINISHED, origin[Origin.GENERATION]
        Origins.set(offset, origin)
        Origins.leave(offset, origin)
        odd[offset] = false
        odd_gone[#odd_gone + 1] = number(offset)
      elseif verb == Verb.ACK and rollback_epoch ~= h_rollback_epoch and now < repair_until + Bound.REPEAT_MS
          and not origins().missing and not Origins.of(offset) then
        s_fence = fence + 1
        Origins.acked_as(offset, false, s_fence)
      end
      if offset >= watermark then finish(offset) end
      if E.any and (verb ~= Verb.FINISH or arg ~= Finish.SENT) then E.over[offset] = true end
    else
      if verb == Verb.GRANT or verb == Verb.MOVE_TO_RETRY then
        local was = s_fence
        s_fence = fences[group]
        if not s_fence then
          s_fence = max(h_fence + 1, now_us)
          fences[group], h_fence = s_fence, s_fence
        end
        if verb == Verb.MOVE_TO_RETRY then
          local old = Origins.of(offset)
          if old then Origins.leave(offset, old) else Origins.count = Origins.count + 1 end
          local sent_ = { state, s_attempt, releases, was, s_rollback_epoch, when_ms, first, s_fence, 0, 0, 0, 0, 0 }
          Origins.set(offset, sent_)
          if arg ~= 0 then Origins.block(offset, sent_, arg) end
        else
          s_attempt = math.min(s_attempt + 1, Bound.ATTEMPT_MAX)
          when_ms = now + arg
          if first == 0 then first = floor(now / 1000) end
        end
        s_rollback_epoch = h_rollback_epoch
      elseif verb == Verb.EXTEND then
        -- A repair (not counted) gives a forgotten lease back and never shortens a known one.
        local from = counted == 0 and fence == s_fence and when_ms or 0
        s_fence, s_rollback_epoch, s_attempt, when_ms = fence, rollback_epoch, attempt, max(from, now + arg)
        if first == 0 then first = floor(now / 1000) end
        h_fence = max(h_fence, fence)
      elseif verb == Verb.PLACE_COPY then
        s_fence, s_rollback_epoch, s_attempt = fence, h_rollback_epoch, attempt
        when_ms, first = arg == 0 and now or arg, group == 0 and floor(now / 1000) or group
        h_fence = max(h_fence, fence)
      else
        when_ms = In.DELAYED(verb) and now + arg or In.AT_ONCE(verb) and now or 0
        if (In.UNCOUNTED(verb) or In.COUNT_ASKED(verb) and counted == 0)
            and releases < Bound.RELEASES_MAX then
          releases = releases + 1
          s_attempt = max(s_attempt - 1, 0)
        end
      end
      state = target
      if origin then
        origin[Slot.STATE], origin[Slot.ATTEMPT], origin[Slot.RELEASES], origin[Slot.FENCE], origin[Slot.ROLLBACK_EPOCH], origin[Slot.WHEN_MS], origin[Slot.FIRST_S] =
          state, s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first
        Origins.set(offset, origin)
      else
        page.d[at] = pack(SLOT, state, s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first)
        make("s", s_made, lists, page)
        touch(page, at, s_dirty)
      end
    end
  end
  if origin then state = State.SENDING end
  if over or target == State.FINISHED then state = State.FINISHED end
  answer(outcome, state, s_attempt, s_fence, when_ms, first, late, offset)
  return true
end

