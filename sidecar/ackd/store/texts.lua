-- apply, part 7: texts about messages (core/record/texts.py). Key `t` is a hash: offset -> lengths of the first reason,
-- the last reason and the progress note, then these and the history (core/record/delivery_events.py). Key `o` is a sorted set:
-- offset -> number of the write. META's field `t`: count of messages with texts, bytes of all texts, count of messages
-- with a note, number of the last write; without the field the record has no texts. All state is in one table, `E`
-- (state.lua), as most calls bring no texts. `over`: offsets that this call finishes; `cleared`: it deletes all texts.
E.TOTAL, E.SIZES, E.ITEM = ">I4I6I4I6", ">I2I2I2", ">I4I2c0I2c0I2c0I2c0I2c0"
-- An event of a history: outcome, attempt, time, fence, lengths of holder and reason.
E.EVENT = ">BHI6I7BH"

-- `total`: META's field `t` or false. `reported`: packed texts that this call brings, or nil.
E.begin = function(total, reported)
  E.total, E.reported, E.over, E.cleared = total, reported, {}, false
  E.count, E.bytes, E.notes, E.last = 0, 0, 0, 0
  if total then E.count, E.bytes, E.notes, E.last = unpack_(E.TOTAL, total) end
end

E.clear = function()
  call("UNLINK", BASE .. "t", BASE .. "o")
  E.count, E.bytes, E.notes = 0, 0, 0
end

-- Deletes the texts of these offsets (`names`: their names as fields), and corrects the totals.
E.drop = function(names)
  for first = 1, #names, 1000 do
    local last, gone = math.min(first + 999, #names), {}
    for at, texts in ipairs(call("HMGET", BASE .. "t", unpack(names, first, last))) do
      if texts then
        local _, _, size_note = unpack_(E.SIZES, texts)
        gone[#gone + 1] = names[first + at - 1]
        E.bytes = E.bytes - (#texts - 6)
        if size_note > 0 then E.notes = E.notes - 1 end
      end
    end
    if gone[1] then
      call("HDEL", BASE .. "t", unpack(gone))
      call("ZREM", BASE .. "o", unpack(gone))
      E.count = E.count - #gone
    end
  end
end

-- Stores the texts of one offset and drops the oldest while there are too many. Returns how many it dropped.
E.put = function(name, first, last, note, history, bytes_max)
  E.drop({ name })
  if first == "" and last == "" and note == "" and history == "" then return 0 end
  E.last, E.count = E.last + 1, E.count + 1
  E.bytes = E.bytes + #first + #last + #note + #history
  if note ~= "" then E.notes = E.notes + 1 end
  call("HSET", BASE .. "t", name, pack(E.SIZES, #first, #last, #note) .. first .. last .. note .. history)
  call("ZADD", BASE .. "o", number(E.last), name)
  local dropped = 0
  while E.count > 1 and (E.count > Bound.TEXTS_MAX or E.bytes > bytes_max) do
    local before = E.count
    E.drop(call("ZRANGE", BASE .. "o", 0, 0))
    dropped = dropped + 1
    if E.count == before then -- the store lost a key, so the totals are wrong: delete all, store again
      E.clear()
      return dropped + E.put(name, first, last, note, history, bytes_max)
    end
  end
  return dropped
end

-- The texts of a message after a call that brought some; nil if what it asked for was refused. `k_`: known before.
E.joined = function(outcome, k_first, k_last, k_note, k_history, first, last, note, history)
  if In.NOTED(outcome) then return k_first, k_last, note, k_history end
  if first == "" then first = last end
  if k_first ~= "" then first = k_first end
  if In.REASONED(outcome) then
    return first, last ~= "" and last or k_last, k_note, k_history
  elseif outcome == Outcome.DONE then
    return first, k_last ~= "" and k_last or last, k_note ~= "" and k_note or note,
      k_history ~= "" and k_history or history
  end
end

-- A history with one more event, without the oldest ones beyond the bounds.
E.with_event = function(history, outcome, attempt, fence, holder, reason)
  if history ~= "" then
    local newest, _, _, newest_fence = unpack_(E.EVENT, history)
    if newest == outcome and newest_fence == fence then return history end
  end
  holder, reason = sub(holder, 1, Bound.HOLDER_BYTES_MAX), sub(reason, 1, Bound.REASON_BYTES_MAX)
  history = pack(E.EVENT, outcome, attempt, now, fence, #holder, #reason) .. holder .. reason .. history
  local stop = 0
  for _ = 1, Bound.EVENTS_MAX do
    local _, _, _, _, size_holder, size_reason, at = unpack_(E.EVENT, history, stop + 1)
    if at - 1 + size_holder + size_reason > Bound.HISTORY_BYTES_MAX then break end
    stop = at - 1 + size_holder + size_reason
    if stop >= #history then break end
  end
  return sub(history, 1, stop)
end

-- Keeps what one item of the call brought for its message. `at`: where the item begins in `ARG`. Returns how many
-- messages lost their texts to a bound.
E.take = function(ARG, at, result, first, last, note, history, holder, bytes_max)
  local verb, offset, fence, _, attempt = unpack_(OP, ARG, at)
  if E.over[offset] then return 0 end
  local name, k_first, k_last, k_note, k_history = number(offset), "", "", "", ""
  local known = call("HGET", BASE .. "t", name)
  if known then
    local size_first, size_last, size_note, from = unpack_(E.SIZES, known)
    k_first, k_last = sub(known, from, from + size_first - 1), sub(known, from + size_first, from + size_first + size_last - 1)
    from = from + size_first + size_last
    k_note, k_history = sub(known, from, from + size_note - 1), sub(known, from + size_note)
  end
  local outcome, _, r_attempt, r_fence = unpack_(RESULT, result)
  local reason = last
  first, last, note, history = E.joined(outcome, k_first, k_last, k_note, k_history, first, last, note, history)
  if verb == Verb.LOOK_UP then outcome = outcome == Outcome.HELD and Outcome.GRANTED or Outcome.LOST end
  if In.EVENTS(outcome) then
    if not first then first, last, note, history = k_first, k_last, k_note, k_history end
    history = E.with_event(history, outcome, attempt ~= 0 and attempt or r_attempt, fence ~= 0 and fence or r_fence, holder, reason)
    if outcome == Outcome.GRANTED then
      local more = #first + #last + #note + #history - (known and #known - 6 or 0)
      if E.bytes + more > bytes_max or not known and E.count >= Bound.DELIVERIES_MAX then return 0 end
    end
  end
  return first and E.put(name, first, last, note, history, bytes_max) or 0
end

-- Writes all changes of texts; the last step of a call. `pos`: where the items begin in `ARG`. Returns bits for the
-- reply (2 = there are texts, 4 = there are notes), and how many messages lost their texts to a bound.
E.keep = function(ARG, pos)
  local names, reported, dropped = {}, E.reported, 0
  if E.cleared then E.clear() end
  if E.count > 0 then
    for offset in pairs(E.over) do names[#names + 1] = number(offset) end
    E.drop(names)
  end
  local at, bytes_max = 5, reported and unpack_(">I4", reported)
  while reported and at <= #reported do
    local item, first, last, note, history, holder
    item, first, last, note, history, holder, at = unpack_(E.ITEM, reported, at)
    dropped = dropped + E.take(ARG, pos + item * Size.OP, results[item + 1], first, last, note, history, holder, bytes_max)
  end
  if E.count == 0 then
    if E.total then call("HDEL", META, "t") end
    return 0, dropped
  end
  local total = pack(E.TOTAL, E.count, E.bytes, E.notes, E.last)
  if total ~= E.total then call("HSET", META, "t", total) end
  return E.notes > 0 and 6 or 2, dropped
end
