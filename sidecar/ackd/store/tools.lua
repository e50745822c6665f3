-- ledger, 1: what needs nothing of the call, so that it is made once for all calls of a flush.
local T = --[[TABLE]] nil
local OP = ">BI8I8HHI8I4B"
local REPLY = ">BI8I8HI4I8I8I8BI4"
local RESULT = ">BBHI8I8I4B"
-- Stands where a verdict would: the call failed, the text says how (see redis.py).
local FAILED = "\255user_script: "

local function refuse(verdict, h_term, h_version)
  return pack(REPLY, verdict, 0, h_version or 0, 0, 0, h_term or 0, 0, 0, 0, 0)
end

-- A page's chunk will be written; if it is not there, it will be made.
local function make(kind, made, lists, page)
  if not page.data and not made[page.c] then
    made[page.c] = true
    lists[kind .. page.c] = true
  end
end

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

-- A chunk goes, and its pages with it.
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

-- Dirty units of a page, as few SETRANGEs as are worth their overhead.
local function save(key, page, unit, gap)
  local d, data = page.d, page.data
  if page.whole then
    call("SETRANGE", key, page.at, data)
    if not next(d) then return end
  end
  if page.runs then
    -- All that lies between, in one piece.
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
