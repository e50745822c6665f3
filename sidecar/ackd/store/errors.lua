-- ledger, 7: what applications said of failures (core/record/failures.py). A hash: offset -> length of the first
-- text, first, last. In one table (state.lua), as most calls have nothing to do with it. `count`: messages
-- with texts, `over`: offsets that this call finishes, `cleared`: it forgets all, `text`: what it says.

E.begin = function(count, text)
  E.before, E.count, E.text, E.over, E.cleared = count, count, text or "", {}, false
end

-- Writes what is over and what was said, behind all else; how many there are now. `pos`: where the
-- items begin.
E.keep = function(ARG, pos)
  local key, gone, text = BASE .. "e", {}, E.text
  if E.cleared then call("UNLINK", key) end
  for offset in pairs(E.over) do gone[#gone + 1] = number(offset) end
  for first = 1, #gone, 1000 do
    local removed = call("HDEL", key, unpack(gone, first, math.min(first + 999, #gone)))
    E.count = max(E.count - removed, 0)
  end
  local at = 1
  while at <= #text do
    local item, first, last
    item, first, last, at = unpack_(">I4I2c0I2c0", text, at)
    local outcome = byte(results[item + 1])
    local offset = unpack_(">I8", ARG, pos + item * Size.OP + 1)
    if (outcome == Outcome.RETRYING or outcome == Outcome.DEAD or outcome == Outcome.DONE)
        and not E.over[offset] then
      local name = number(offset)
      local known = call("HGET", key, name)
      if known then
        first = unpack_(">I2c0", known)
      elseif first == "" then
        first = last
      end
      if known or E.count < Bound.ERRORS_MAX then
        E.count = E.count + call("HSET", key, name, pack(">I2", #first) .. first .. last)
      end
    end
  end
  if E.count ~= E.before then call("HSET", META, "e", number(E.count)) end
  return E.count
end
