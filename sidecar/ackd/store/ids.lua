-- Which place a message has, by a digest of its id, and for how long that is known: as `core/known_ids.py` says it.
-- KEYS[1] = beginning of the names. The hash that ends in "i" has the slices of each block: the time that counts, when
-- it was counted last, ids in the newest slice, the number of that one, for each slice its start and bits, the bits of
-- those that are being removed, and when a message last had a place of a copy (-1: none had). A slice's buckets are hashes of some 64 ids, which a server packs.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local keep = tonumber(ARGV[1])
local index = KEYS[1] .. "i"
local blocks = {}
local all_read = false

local function bucket_name(block, slice, bucket)
  return string.format("%s%.0f:%.0f:%.0f", index, block, slice, bucket)
end

local function block_of(number)
  return math.floor(number % Log.GENERATION % Source.COPIES / Source.BLOCK)
end

-- Removes some buckets of slices whose time is over: many at once would hold up everybody.
local function remove_some(block, known)
  local old = known.old[#known.old]
  if not old then return end
  local names = {}
  while old.bucket > 0 and #names < Ids.REMOVED_MAX do
    old.bucket = old.bucket - 1
    names[#names + 1] = bucket_name(block, old.slice, old.bucket)
  end
  if #names > 0 then redis.call("UNLINK", unpack(names)) end
  if old.bucket == 0 then known.old[#known.old] = nil end
end

-- The smallest number of bits whose buckets have room for so many ids.
local function bits_for(count)
  local bits = 0
  while bits < Ids.BITS_MAX and Ids.IN_BUCKET * 2 ^ bits < count do bits = bits + 1 end
  return bits
end

local function turn(known, tick)
  if tick then
    known.active = known.active + math.min(math.max(now - known.last, 0), Ids.STEP_MS)
    known.last = now
  end
  local slices = known.slices
  local newest = slices[#slices]
  if not newest then
    newest = {slice = 0, start = known.active, bits = Ids.FIRST_BITS}
    slices[#slices + 1] = newest
  end
  local full = Ids.FULL * 2 ^ newest.bits
  if known.count > full or known.active - newest.start >= math.floor(keep / Ids.SLICES) then
    local wanted = known.count > full and known.count * Ids.FACTOR or known.count
    slices[#slices + 1] = {slice = newest.slice + 1, start = known.active, bits = bits_for(wanted)}
    known.count = 0
  end
  while #slices > 1 do
    local old, next = unpack(slices)
    if next.start > known.active - keep then break end
    table.remove(slices, 1)
    table.insert(known.old, 1, {slice = old.slice, bucket = 2 ^ old.bits})
  end
end

local function read_block(text)
  local known = {active = 0, last = 0, count = 0, slices = {}, old = {}, copied = -1}
  if not text then return known end
  local slices, old, copied
  known.active, known.last, known.count, slices, old, copied = cmsgpack.unpack(text)
  known.copied = copied or known.active
  for at = 1, #slices, 3 do
    known.slices[#known.slices + 1] = {slice = slices[at], start = slices[at + 1], bits = slices[at + 2]}
  end
  for at = 1, #old, 2 do known.old[#known.old + 1] = {slice = old[at], bucket = old[at + 1]} end
  return known
end

local function write_blocks()
  for block, known in pairs(blocks) do
    if known.used then
      remove_some(block, known)
      local slices, old = {}, {}
      for _, each in ipairs(known.slices) do
        for _, value in ipairs({each.slice, each.start, each.bits}) do slices[#slices + 1] = value end
      end
      for _, each in ipairs(known.old) do
        for _, value in ipairs({each.slice, each.bucket}) do old[#old + 1] = value end
      end
      local text = cmsgpack.pack(known.active, known.last, known.count, slices, old, known.copied)
      redis.call("HSET", index, block, text)
    end
  end
end

local function known_block(block)
  local known = blocks[block]
  if not known then
    known = read_block(redis.call("HGET", index, block))
    blocks[block] = known
  end
  return known
end

-- The block in which this call keeps ids; `tick`: messages of it came.
local function used_block(block, tick)
  local known = known_block(block)
  if not known.used then
    known.used = true
    turn(known, tick)
  end
  return known
end

local function bucket_of(block, slice, message)
  local first, second = string.byte(message, 1, Ids.BUCKET_BYTES)
  local bucket = math.floor((first * 256 + second) / 2 ^ (Ids.BITS_MAX - slice.bits))
  return bucket_name(block, slice.slice, bucket)
end

local function find_in(block, known, message)
  local field = string.sub(message, Ids.BUCKET_BYTES + 1)
  for at = #known.slices, 1, -1 do
    local found = redis.call("HGET", bucket_of(block, known.slices[at], message), field)
    if found then
      local number, offset = cmsgpack.unpack(found)
      return string.format("%.0f:%.0f", number, offset)
    end
  end
end

-- The place of a message, looked for in its own block first: its broker may have made a copy anywhere.
local function find(block, message)
  local found = find_in(block, known_block(block), message)
  if found then return found end
  for _, other in ipairs(redis.call("HKEYS", index)) do known_block(tonumber(other)) end
  local others = {}
  for other in pairs(blocks) do others[#others + 1] = other end
  table.sort(others)
  for _, other in ipairs(others) do
    if other ~= block then
      found = find_in(other, known_block(other), message)
      if found then return found end
    end
  end
end

local function is_copy(number)
  return tonumber(number) % Log.GENERATION >= Source.COPIES
end

-- The place of a message that may have come first as a copy.
local function find_copied(message)
  if not all_read then
    all_read = true
    for _, other in ipairs(redis.call("HKEYS", index)) do known_block(tonumber(other)) end
  end
  local found = {}
  for block, known in pairs(blocks) do
    if known.copied >= 0 and known.active - known.copied <= keep then found[#found + 1] = block end
  end
  table.sort(found)
  for _, block in ipairs(found) do
    local place = find_in(block, blocks[block], message)
    if place then return place end
  end
end

local function keep_place(block, known, message, number, offset)
  local name = bucket_of(block, known.slices[#known.slices], message)
  local field = string.sub(message, Ids.BUCKET_BYTES + 1)
  if is_copy(number) then known.copied = known.active end
  if redis.call("HSET", name, field, cmsgpack.pack(tonumber(number), tonumber(offset))) == 1 then
    known.count = known.count + 1
    if redis.call("HLEN", name) == 1 then redis.call("EXPIRE", name, Ids.UNUSED_S) end
  end
end
