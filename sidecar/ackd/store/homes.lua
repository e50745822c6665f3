-- ledger, 4: what the items share, and home records (core/home.py).

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

-- --- homes, by offset; false = there is none
local HOME = SLOT .. "I7I4I8I6B" -- the slot as it was, generation, carrier, closed_ms, claimed
-- In one table, because a function can share 60 names at most. `count`: how many there are, `before`: there
-- were at the start, `map`: by
-- offset, `dirty`: to be written, `gone`: all that the store has goes, `lost`: the head counts some and
-- their key is gone (R14), `closed`: packed, to be appended to the list of closed ones, `closing`: what
-- was read of that list, `pruned`: so many leave its front.
local H = { used = true }

local function home_of(offset)
  local home = H.map[offset]
  if home == nil then
    H.used = true
    local raw = H.count > 0 and not H.gone and call("HGET", BASE .. "p", number(offset))
    home = raw and { unpack_(HOME, raw) } or false
    H.map[offset] = home
  end
  return home
end

local function set_home(offset, home)
  H.map[offset] = home
  H.dirty[offset] = true
end

-- Asked before this call changes any home.
local function lost_homes()
  if H.lost == nil then
    if H.before == 0 then return false end
    H.used = true
    H.lost = call("EXISTS", BASE .. "p") == 0
  end
  return H.lost
end

-- CLAIM and CLOSE; false when the homes are lost.
local claims = {}
if any_claim then
claims[Verb.CLOSE] = function(offset, fence)
  if lost_homes() then return false end
  local home = home_of(offset)
  if home and home[8] == fence and home[11] == 0 and (home[12] == 1 or home[1] == State.FINISHED) then
    home[11] = now
    set_home(offset, home)
    H.closed[#H.closed + 1] = pack(">I6I8", now, offset)
  end
  answer(Outcome.DONE, State.READY, 0, 0, 0, 0, 0, offset)
  return true
end

-- What is answered about a carrier without a home.
local function unknown(offset, fence, rterm, counted)
  if fence <= fence_floor then return Outcome.FINISHED, 0 end
  if rterm == h_rterm then return counted == 1 and Outcome.REFUSED or Outcome.LOST, 0 end
  if offset >= watermark then
    local page, _, value, weight = bits_of(offset)
    if b_gone[page.c] then return Outcome.HELD, now + Bound.UNKNOWN_AGAIN_MS end
    if value % (weight * 2) < weight then return Outcome.HELD, now + Bound.UNKNOWN_AGAIN_MS end
  end
  return Outcome.LOST, 0
end

claims[Verb.CLAIM] = function(offset, fence, rterm, partition, place, counted)
  if lost_homes() then return false end
  local home = home_of(offset)
  if not home then
    local outcome, when_ms = unknown(offset, fence, rterm, counted)
    answer(outcome, State.READY, 0, 0, when_ms, 0, 0, offset)
    return true
  end
  local state, when_ms, outcome, told = home[1], home[6], Outcome.CLAIMED, 0
  if fence ~= home[8] then
    outcome = fence < home[8] and Outcome.REFUSED or Outcome.LOST
  elseif state == State.FINISHED then
    outcome = Outcome.FINISHED
    if home[11] == 0 then
      home[11] = now
      set_home(offset, home)
      H.closed[#H.closed + 1] = pack(">I6I8", now, offset)
    end
  else
    if home[12] == 0 then
      if state ~= State.DEAD then
        if now < repair_until then
          told = repair_until
        elseif state == State.LEASED then
          told = when_ms > now and when_ms or now < grace_until and grace_until or 0
        end
      end
      if told ~= 0 then
        outcome = Outcome.HELD
      else
        home[9], home[10], home[12] = partition, place, 1
        set_home(offset, home)
      end
    end
    if outcome == Outcome.CLAIMED then
      if home[9] ~= partition or home[10] ~= place then
        outcome = Outcome.REFUSED
      elseif state == State.WAITING then
        told = when_ms
      end
    end
  end
  answer(outcome, state, home[2], home[8], told, home[7], 0, offset)
  return true
end
end

