-- The place (partition:offset) under which a broker's message id is known (`ids.lua`). An unknown id gets the place where
-- it is stored, in the partition of its log's generation: as `core/log_generations.py` says it, number by number.
-- The hash of the logs ends in "g": partition number -> number of merged cuts, cuts, offsets and times of the samples.
-- It has no TTL: while a log is idle for months it may be cut.
-- ARGV: keep_ms, then for each message the digest of its id, partition, offset and store time; -1 as store time: it is
-- held under this very place; -2: no message, only the time is asked for. Returns the place of each, each cut that was
-- found now (partition, offset, generation), and for each message the time that counts for the ids of its block.
local states = KEYS[1] .. "g"
local logs, read = {}, {}

local function log_of(number)
  local log = logs[number]
  if log then return log end
  log = {merged = 0, cuts = {}, offsets = {}, times = {}, came = {generations = {}, offsets = {}, times = {}}}
  local text = redis.call("HGET", states, number)
  if text then log.merged, log.cuts, log.offsets, log.times = cmsgpack.unpack(text) end
  logs[number] = log
  read[#read + 1] = number
  return log
end

local OLDEST = 1

-- The generation of a message, and whether it is the first one of a new generation; nil if there are too many.
local function generation_of(log, offset, stored)
  local newest = log.merged + #log.cuts
  if stored == 0 then return newest, false end
  local first = log.offsets[OLDEST]
  if not (first and offset > first) then
    for at, cut in ipairs(log.cuts) do
      if cut >= stored then return log.merged + at - 1, false end
    end
  end
  local last = log.offsets[#log.offsets]
  if not last or offset > last then return newest, false end
  local highest
  for at, sampled in ipairs(log.offsets) do
    if sampled >= offset then
      highest = log.times[at]
      break
    end
  end
  if stored <= highest then return newest, false end
  if newest >= Log.GENERATIONS_MAX then return nil end
  log.cuts[#log.cuts + 1] = highest
  if #log.cuts > Log.CUTS_MAX then
    table.remove(log.cuts, 1)
    log.merged = log.merged + 1
  end
  log.offsets, log.times = {offset}, {stored}
  return newest + 1, true
end

local function thin(offsets, times)
  local top, drop, least = offsets[#offsets], nil, nil
  for at = 2, #offsets - Log.DENSE do
    local width = (offsets[at + 1] - offsets[at - 1]) / (top - offsets[at])
    if not drop or width < least then drop, least = at, width end
  end
  table.remove(offsets, drop)
  table.remove(times, drop)
end

-- Takes a sample of what came in this call and is of the current generation.
local function seen(log, came)
  local newest, high, top = log.merged + #log.cuts, -1, -1
  for at, stored in ipairs(came.times) do
    if stored > 0 and came.generations[at] == newest then
      high = math.max(high, came.offsets[at])
      top = math.max(top, stored)
    end
  end
  local count = #log.offsets
  if high < 0 or (count > 0 and high <= log.offsets[count]) then return false end
  log.offsets[count + 1], log.times[count + 1] = high, math.max(top, log.times[count] or 0)
  if count >= Log.SAMPLES_MAX then thin(log.offsets, log.times) end
  return true
end

-- Whether a message of a known log is where it was first stored, as far as the log tells: then its id
-- says no more, unless it came as a copy before.
local function is_usual(number, log, offset, stored)
  if number >= Source.COPIES or log.merged + #log.cuts > 0 then return false end
  local last = log.offsets[#log.offsets]
  if not last then return false end
  if stored == 0 or offset > last then return true end
  for at, sampled in ipairs(log.offsets) do
    if sampled >= offset then return stored <= log.times[at] end
  end
end

local places, cuts, times = {}, {}, {}

-- The place of a message that nobody knows.
local function new_place(number, log, offset, stored)
  local generation, cut = generation_of(log, offset, stored)
  if not generation then return nil end
  local came = log.came
  came.generations[#came.generations + 1] = generation
  came.offsets[#came.offsets + 1], came.times[#came.times + 1] = offset, stored
  if cut then
    log.changed = true
    cuts[#cuts + 1] = string.format("%.0f:%.0f:%.0f", number, offset, generation)
  end
  return number + generation * Log.GENERATION
end

for at = 2, #ARGV, 4 do
  local message, number, offset, stored = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local block = block_of(number)
  local known = used_block(block, stored >= 0)
  local place
  if stored == -1 then
    place = find(block, message)
  elseif stored >= 0 then
    local log = log_of(ARGV[at + 1])
    if is_usual(number, log, offset, stored) then
      place = find_copied(message)
    else
      place = find(block, message)
    end
    if not place then
      number = new_place(number, log, offset, stored)
      if not number then
        return redis.error_reply("ERR the log of partition " .. ARGV[at + 1] .. " was cut too often")
      end
    end
  end
  place = place or string.format("%.0f:%s", number, ARGV[at + 2])
  if stored >= -1 then keep_place(block, known, message, string.match(place, "(%d+):(%d+)")) end
  places[#places + 1] = place
  times[#times + 1] = string.format("%.0f", known.active)
end
write_blocks()
for _, number in ipairs(read) do
  local log = logs[number]
  if seen(log, log.came) or log.changed then
    redis.call("HSET", states, number, cmsgpack.pack(log.merged, log.cuts, log.offsets, log.times))
  end
end
return {places, cuts, times}
