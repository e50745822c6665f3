-- apply, part 3: chunks in memory. A page is a whole chunk, or a part of one if the call is small. `data`: its bytes
-- in the store, `d`: changed units, `c`: its chunk, `at`: its first byte there.
local PAGE_BITS, PAGE_SLOTS
local b_pages, s_pages = {}, {}
local b_made, s_made = {}, {} -- chunks that this call creates
local b_gone, s_gone = {}, {} -- chunks that META lists and the store lost (R14)
local any_gone, all_listed = false, false
local b_dirty, s_dirty = {}, {}
local filled = {} -- slot chunk -> page of its bits, if a byte of them became 255: perhaps all are finished
local unlisted = {} -- fields of the chunks that this call deletes

-- Whether META lists this chunk; asks the store once.
local function listed(field)
  local there = lists[field]
  if there == nil then
    there = not all_listed and call("HEXISTS", META, field) == 1
    lists[field] = there
  end
  return there
end

-- Asks for many chunks at once, so that `listed` knows them.
local function ask_listed(kind, chunks)
  local fields = {}
  for _, c in ipairs(chunks) do
    if lists[kind .. c] == nil then fields[#fields + 1] = kind .. c end
  end
  for first = 1, #fields, 1000 do
    local last = math.min(first + 999, #fields)
    local there = call("HMGET", META, unpack(fields, first, last))
    for at = first, last do lists[fields[at]] = there[at - first + 1] ~= false end
  end
end

local function b_page(offset)
  local index = floor(offset / PAGE_BITS)
  local page = b_pages[index]
  if page then return page end
  local c = floor(offset / Size.BITS_CHUNK)
  page = { c = c, at = (index * PAGE_BITS - c * Size.BITS_CHUNK) / 8, d = {} }
  b_pages[index] = page
  if not b_made[c] and listed("b" .. c) then
    local data = call("GETRANGE", BASE .. "b" .. c, page.at, page.at + PAGE_BITS / 8 - 1)
    if data ~= "" then
      page.data = data
    else
      b_gone[c], any_gone = true, true
    end
  end
  return page
end

local function s_page(offset)
  local index = floor(offset / PAGE_SLOTS)
  local page = s_pages[index]
  if page then return page end
  local c = floor(offset / Size.SLOTS_CHUNK)
  page = { c = c, at = (index * PAGE_SLOTS - c * Size.SLOTS_CHUNK) * Size.SLOT, d = {} }
  s_pages[index] = page
  if not s_made[c] and listed("s" .. c) then
    local from = page.at
    local data = call("GETRANGE", BASE .. "s" .. c, from, from + PAGE_SLOTS * Size.SLOT - 1)
    if data ~= "" then
      page.data = data
    else
      s_gone[c], any_gone = true, true
    end
  end
  return page
end

-- The byte with this offset's bit: its page, its index there, its value, and the weight of the bit.
local function bits_of(offset)
  local low = offset % PAGE_BITS
  local page = b_pages[(offset - low) / PAGE_BITS] or b_page(offset)
  local at = (low - low % 8) / 8
  return page, at, page.d[at] or page.data and byte(page.data, at + 1) or 0, 2 ^ (7 - low % 8)
end

-- Sets the bit of an offset: it is finished.
local function finish(offset)
  local page, at, value, weight = bits_of(offset)
  make("b", b_made, lists, page)
  if value % (weight * 2) < weight then
    value = value + weight
    page.d[at] = value
    touch(page, at, b_dirty)
    if value == 255 then filled[floor(offset / Size.SLOTS_CHUNK)] = page end
  end
end
