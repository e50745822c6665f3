-- apply, part 7: texts that applications reported (core/record/texts.py). Key `t` is a hash: offset -> length of the
-- first reason, length of the last reason, first reason, last reason, progress note. Key `o` is a sorted set: offset ->
-- number of the write. META's field `t`: count of messages with texts, bytes of all texts, count of messages with a
-- note, number of the last write; without the field the record has no texts. All state is in one table, `E`
-- (state.lua), as most calls bring no texts. `over`: offsets that this call finishes; `cleared`: it deletes all texts.
E.TOTAL, E.SIZES, E.ITEM = ">I4I6I4I6", ">I2I2", ">I4I2c0I2c0I2c0"

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
        local size_first, size_last = unpack_(E.SIZES, texts)
        gone[#gone + 1] = names[first + at - 1]
        E.bytes = E.bytes - (#texts - 4)
        if #texts - 4 > size_first + size_last then E.notes = E.notes - 1 end
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
E.put = function(name, first, last, note, bytes_max)
  E.drop({ name })
  if first == "" and last == "" and note == "" then return 0 end
  E.last, E.count = E.last + 1, E.count + 1
  E.bytes = E.bytes + #first + #last + #note
  if note ~= "" then E.notes = E.notes + 1 end
  call("HSET", BASE .. "t", name, pack(E.SIZES, #first, #last) .. first .. last .. note)
  call("ZADD", BASE .. "o", number(E.last), name)
  local dropped = 0
  while E.count > 1 and (E.count > Bound.TEXTS_MAX or E.bytes > bytes_max) do
    local before = E.count
    E.drop(call("ZRANGE", BASE .. "o", 0, 0))
    dropped = dropped + 1
    if E.count == before then -- the store lost a key, so the totals are wrong: delete all, store again
      E.clear()
      return dropped + E.put(name, first, last, note, bytes_max)
    end
  end
  return dropped
end

-- The texts of a message after a settle that brought some; nil if the settle was refused.
E.joined = function(outcome, known, first, last, note)
  local k_first, k_last, k_note = "", "", ""
  if known then
    local size_first, size_last = unpack_(E.SIZES, known)
    k_first, k_last = sub(known, 5, 4 + size_first), sub(known, 5 + size_first, 4 + size_first + size_last)
    k_note = sub(known, 5 + size_first + size_last)
  end
  if In.NOTED(outcome) then return k_first, k_last, note end
  if first == "" then first = last end
  if k_first ~= "" then first = k_first end
  if In.REASONED(outcome) then
    return first, last ~= "" and last or k_last, k_note
  elseif outcome == Outcome.DONE then
    return first, k_last ~= "" and k_last or last, k_note ~= "" and k_note or note
  end
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
    local item, first, last, note
    item, first, last, note, at = unpack_(E.ITEM, reported, at)
    local offset = unpack_(">I8", ARG, pos + item * Size.OP + 1)
    if not E.over[offset] then
      local name = number(offset)
      first, last, note = E.joined(byte(results[item + 1]), call("HGET", BASE .. "t", name), first, last, note)
      if first then dropped = dropped + E.put(name, first, last, note, bytes_max) end
    end
  end
  if E.count == 0 then
    if E.total then call("HDEL", META, "t") end
    return 0, dropped
  end
  local total = pack(E.TOTAL, E.count, E.bytes, E.notes, E.last)
  if total ~= E.total then call("HSET", META, "t", total) end
  return E.notes > 0 and 6 or 2, dropped
end
