-- ledger, 4: what a grant, a settle or a look does to one offset.

-- --- offsets that were finished in another way than by an ack
local odd, odd_gone, odd_cleared = {}, {}, false

-- --- one item
local results, journal = {}, {}
local fences = {}

local function answer(outcome, state, attempt, fence, when_ms, first_s_, late, offset)
  results[#results + 1] = pack(RESULT, outcome, state, attempt, fence, when_ms, first_s_, late)
  if term == 0 and (outcome == Outcome.ACKED or outcome == Outcome.RETRYING
      or outcome == Outcome.EXTENDED or outcome == Outcome.DEAD or outcome == Outcome.RELEASED) then
    journal[#journal + 1] = pack(JOURNAL, offset, outcome, when_ms, fence)
  end
end

-- GRANT, the settles, FINISH and LOOK; false when a chunk is lost.
local function transition(verb, offset, fence, rterm, attempt, arg, group, counted)
  local page_b, at_b, value, weight = bits_of(offset)
  local at = offset % PAGE_SLOTS
  local page = s_pages[(offset - at) / PAGE_SLOTS] or s_page(offset)
  if any_gone and (b_gone[page_b.c] or s_gone[page.c]) then return false end
  local over = offset < watermark or value % (weight * 2) >= weight
  local state, s_attempt, releases, s_fence, s_rterm, when_ms, first = 0, 0, 0, 0, 0, 0, 0
  local raw = page.d[at]
  if raw then
    state, s_attempt, releases, s_fence, s_rterm, when_ms, first = unpack_(SLOT, raw)
  elseif page.data and byte(page.data, at * Size.SLOT + 1) ~= 0 then
    state, s_attempt, releases, s_fence, s_rterm, when_ms, first =
      unpack_(SLOT, page.data, at * Size.SLOT + 1)
  end
  local phase = state
  if over then
    local score = odd[offset]
    if score == nil then
      score = not odd_cleared and call("ZSCORE", BASE .. "x", number(offset))
    end
    phase = score and Phase.GONE or Phase.ACKED
  elseif state == State.LEASED and when_ms <= now then
    phase = Phase.EXPIRED
  end
  if verb == Verb.GRANT then
    local held = 0
    if over or phase == Phase.DEAD then
      held = 0
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
  elseif not over and (fence ~= s_fence or rterm ~= s_rterm) then
    -- Another token. The newest one there is counts when the store forgot its grant (R9): then it
    -- has the larger fence, and the slot was not granted after the last possible rollback.
    if phase ~= Phase.DEAD and fence > s_fence and fence > fence_floor
        and not (phase == Phase.LEASED and s_rterm == h_rterm and rterm ~= h_rterm) then
      phase = now < repair_until and Phase.FORGOTTEN
        or verb == Verb.LOOK and Phase.GONE or Phase.EXPIRED
    else
      phase = Phase.GONE
    end
  end
  if verb == Verb.LOOK then
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
    answer(outcome, over and State.FINISHED or state, s_attempt, s_fence, when_ms, first,
      phase == Phase.EXPIRED and 1 or 0, offset)
    return true
  end
  local outcome, what = byte(T, (phase * 16 + verb) * 2 + 1, (phase * 16 + verb) * 2 + 2)
  local target = (what - what % 2) / 2
  local late = 0
  if what % 2 == 1 then
    if phase == Phase.EXPIRED and verb ~= Verb.GRANT then late = 1 end
    if target == State.FINISHED then
      if verb == Verb.FINISH then odd[offset] = now * 4 + arg end
      finish(offset)
    else
      if verb == Verb.GRANT then
        s_attempt = math.min(s_attempt + 1, Bound.ATTEMPT_MAX)
        s_fence = fences[group]
        if not s_fence then
          s_fence = max(h_fence + 1, now_us)
          fences[group], h_fence = s_fence, s_fence
        end
        s_rterm, when_ms = h_rterm, now + arg
        if first == 0 then first = floor(now / 1000) end
      elseif verb == Verb.EXTEND then
        -- A repair (not counted) gives a forgotten lease back and never shortens a known one.
        local from = counted == 0 and fence == s_fence and when_ms or 0
        s_fence, s_rterm, s_attempt, when_ms = fence, rterm, attempt, max(from, now + arg)
        if first == 0 then first = floor(now / 1000) end
        h_fence = max(h_fence, fence)
      else
        when_ms = verb == Verb.RETRY and now + arg or verb == Verb.RELEASE and now or 0
        if (verb == Verb.RELEASE or verb == Verb.RETRY and counted == 0)
            and releases < Bound.RELEASES_MAX then
          releases = releases + 1
          s_attempt = max(s_attempt - 1, 0)
        end
      end
      state = target
      page.d[at] = pack(SLOT, state, s_attempt, releases, s_fence, s_rterm, when_ms, first)
      make("s", s_made, lists, page)
      touch(page, at, s_dirty)
    end
  end
  if over or target == State.FINISHED then state = State.FINISHED end
  answer(outcome, state, s_attempt, s_fence, when_ms, first, late, offset)
  return true
end

