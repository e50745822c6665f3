-- apply, part 1: functions that share no state with a call. They are made once for all calls of a flush.
local T = --[[TABLE]] nil
local OP = ">BI8I8HHI8I4B"
local REPLY = ">BI8I8HI4I8I8I8BI4"
local RESULT = ">BBHI8I8I4B"
-- Begins the reply of a call that failed, in the place of its status; the error text follows (redis.py).
local FAILED = "\255user_script: "

local function refuse(verdict, h_term, h_version)
  return pack(REPLY, verdict, 0, h_version or 0, 0, 0, h_term or 0, 0, 0, 0, 0)
end

-- Notes that this call creates the chunk of a page, if the store has none.
local function make(kind, made, lists, page)
  if not page.data and not made[page.c] then
    made[page.c] = true
    lists[kind .. page.c] = true
  end
end

-- Notes that unit `at` of a page changed: widens the range [lo, hi] that `save` writes.
local function touch(page, at, dirty)
  if not page.lo then
    page.lo, page.hi = at, at
    dirty[#dirty + 1] = page
  elseif at < page.lo then
    page.lo = at
  elseif at > page.hi then
    page.hi = at
  end
end

-- Deletes a chunk: forgets its pages and takes it off the list. `per`: pages of a chunk.
local function forget(pages, made, per, c, lists, unlisted, field)
  for index = c * per, (c + 1) * per - 1 do
    if pages[index] then
      pages[index].dead = true
      pages[index] = nil
    end
  end
  made[c] = nil
  lists[field] = false
  unlisted[field] = true
end

-- Writes the changed units (`unit` bytes each) of a page. One SETRANGE also covers up to `gap` unchanged units
-- between two changed ones, as a command costs more than bytes.
local function save(key, page, unit, gap)
  local d, data = page.d, page.data
  if page.whole then
    call("SETRANGE", key, page.at, data)
    if not next(d) then return end
  end
  if page.runs then
    -- `finish_range` wrote long runs into `data`: write all from `lo` to `hi` as one string.
    local places, parts, last = {}, {}, page.lo - 1
    for at in pairs(d) do places[#places + 1] = at end
    table.sort(places)
    for _, at in ipairs(places) do
      parts[#parts + 1] = sub(data, last + 2, at) .. char(d[at])
      last = at
    end
    parts[#parts + 1] = sub(data, last + 2, page.hi + 1)
    call("SETRANGE", key, page.at + page.lo, table.concat(parts))
    return
  end
  local at, hi = page.lo, page.hi
  while at <= hi and not d[at] do at = at + 1 end
  while at <= hi do
    local parts, last, next_ = {}, at, at
    while next_ <= hi and next_ - last <= gap do
      local value = d[next_]
      if value then
        if next_ > last + 1 then
          parts[#parts + 1] = data and sub(data, (last + 1) * unit + 1, next_ * unit)
            or string.rep("\0", (next_ - last - 1) * unit)
        end
        parts[#parts + 1] = unit == 1 and char(value) or value
        last = next_
      end
      next_ = next_ + 1
    end
    call("SETRANGE", key, page.at + at * unit, table.concat(parts))
    at = last + 1
    while at <= hi and not d[at] do at = at + 1 end
  end
end

-- When the owner may ask for this grant again, in ms; 0 = now (`PartitionRecord.held_until`).
local function held_grant(phase, when_ms, now, repair_until, grace_until)
  if phase == Phase.DEAD or phase == Phase.MOVING then return 0 end
  if now < repair_until then return repair_until end
  if phase == Phase.EXPIRED and now < grace_until then return grace_until end
  return (phase == Phase.LEASED or phase == Phase.WAITING and when_ms > now) and when_ms or 0
end

-- Functions that grants and ordinary acks do not need. `rare()` makes them at the first need, because making them
-- takes time in each run of the script.
local Rare = {}

local function rare()
if Rare.seen_by then return Rare end

-- The phase of a finished offset, true if its origin record decides instead, and how it was finished, if not by an ack.
-- `early`: the lease is from before the rollback, and the repair has not ended.
Rare.over_phase = function(verb, offset, early, odd, odd_cleared, base)
  local score = odd[offset]
  if score == nil then
    score = not odd_cleared and call("ZSCORE", base .. "x", number(offset))
  end
  if score then return Phase.GONE, score % 8 == Finish.SENT, score % 8 end
  -- Perhaps a sidecar has yet to restore its origin record (`copies.decides`).
  return Phase.ACKED, early and verb > Verb.ACK and verb <= Verbs.SETTLE_LAST
end

-- The phase for a token that is not the slot's newest (`PartitionRecord.seen_by`).
Rare.seen_by = function(verb, phase, fence, rollback_epoch, s_fence, s_rollback_epoch, h_rollback_epoch, fence_floor, repairing)
  -- If a rollback erased the grant of this token, the token still counts (R9). That is so if its fence is
  -- larger than the slot's, and no grant after the last possible rollback replaced it.
  if phase ~= Phase.DEAD and fence > s_fence and fence > fence_floor
      and not (phase == Phase.LEASED and s_rollback_epoch == h_rollback_epoch and rollback_epoch ~= h_rollback_epoch) then
    return repairing and Phase.FORGOTTEN or verb == Verb.LOOK_UP and Phase.GONE or Phase.EXPIRED
  end
  -- FINISH with an old fence finds nothing to finish: READY, as the message is not over.
  return verb == Verb.FINISH and Phase.READY or Phase.GONE
end

-- The slot after MARK_DEAD, PLACE_COPY, or a settle that does not finish the message: attempt, releases, fence,
-- rollback epoch, when_ms, first_s.
Rare.changed = function(verb, fence, rollback_epoch, attempt, arg, group, counted, s_attempt, releases, s_fence,
    s_rollback_epoch, when_ms, first, now, h_rollback_epoch)
  if verb == Verb.EXTEND then
    -- A repair (counted = 0) gives a forgotten lease back, and never shortens one that the slot has.
    local from = counted == 0 and fence == s_fence and when_ms or 0
    return attempt, releases, fence, rollback_epoch, max(from, now + arg), first == 0 and floor(now / 1000) or first
  elseif verb == Verb.PLACE_COPY then
    return attempt, releases, fence, h_rollback_epoch, arg == 0 and now or arg, group == 0 and floor(now / 1000) or group
  end
  if (In.UNCOUNTED(verb) or In.COUNT_ASKED(verb) and counted == 0) and releases < Bound.RELEASES_MAX then
    releases, s_attempt = releases + 1, max(s_attempt - 1, 0)
  end
  when_ms = In.DELAYED(verb) and now + arg or In.AT_ONCE(verb) and now or 0
  return s_attempt, releases, s_fence, s_rollback_epoch, when_ms, first
end

-- The outcome of LOOK_UP, and 1 if the lease has expired.
Rare.look_outcome = function(phase)
  if phase == Phase.ACKED then return Outcome.ALREADY_ACKED, 0 end
  if phase == Phase.LEASED then return Outcome.HELD, 0 end
  if phase == Phase.EXPIRED then return Outcome.HELD, 1 end
  if phase == Phase.WAITING then return Outcome.RETRYING, 0 end
  if phase == Phase.RELEASED then return Outcome.RELEASED, 0 end
  if phase == Phase.DEAD then return Outcome.DEAD, 0 end
  return phase == Phase.FORGOTTEN and Outcome.UNREPAIRED or Outcome.LOST, 0
end

return Rare
end
