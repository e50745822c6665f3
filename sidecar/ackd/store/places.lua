-- The place (partition:offset) under which a broker's message id is known. An unknown id gets the place where it is
-- stored, in the partition of its log's generation: as `core/log_generations.py` says it, number by number.
-- KEYS[1] = beginning of the names. The hashes id -> place, of a period of keep_ms each, end in the period's number.
-- The hash of the logs ends in "g": partition number -> number of merged cuts, cuts, offsets and times of the samples.
-- It has no TTL: while a log is idle for months it may be cut.
-- ARGV: keep_ms, then for each message its id, partition, offset and store time; -1 as store time: it is held under
-- this very place. Returns the place of each id, and each cut that was found now: partition, offset, generation.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local keep = tonumber(ARGV[1])
local index = math.floor(now / keep)
local current = KEYS[1] .. string.format("%.0f", index)
local before = KEYS[1] .. string.format("%.0f", index - 1)
local states = KEYS[1] .. "g"
local logs, read = {}, {}

local function log_of(number)
  local log = logs[number]
  if log then return log end
  log = {merged = 0, cuts = {}, offsets = {}, times = {}, came = {offsets = {}, times = {}}}
  local text = redis.call("HGET", states, number)
  if text then log.merged, log.cuts, log.offsets, log.times = cmsgpack.unpack(text) end
  logs[number] = log
  read[#read + 1] = number
  return log
end

-- The generation of a message, and whether it is the first one of a new generation; nil if there are too many.
local function generation_of(log, offset, stored)
  local newest = log.merged + #log.cuts
  if stored == 0 then return newest, false end
  for at, cut in ipairs(log.cuts) do
    if cut >= stored then return log.merged + at - 1, false end
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

-- Takes a sample of what came in this call.
local function seen(log, came)
  local last, high, top = log.cuts[#log.cuts] or 0, -1, -1
  for at, stored in ipairs(came.times) do
    if stored > last then
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

local places, cuts = {}, {}
for at = 2, #ARGV, 4 do
  local known = redis.call("HGET", current, ARGV[at])
  if not known then
    known = redis.call("HGET", before, ARGV[at])
    if not known then
      local number, offset, stored = ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
      if stored >= 0 then
        local log = log_of(number)
        local generation, cut = generation_of(log, offset, stored)
        if not generation then return redis.error_reply("ERR the log of partition " .. number .. " was cut too often") end
        local came = log.came
        came.offsets[#came.offsets + 1], came.times[#came.times + 1] = offset, stored
        if cut then
          log.changed = true
          cuts[#cuts + 1] = string.format("%s:%.0f:%.0f", number, offset, generation)
        end
        if generation > 0 then number = string.format("%.0f", number + generation * Log.GENERATION) end
      end
      known = number .. ":" .. ARGV[at + 2]
    end
    redis.call("HSET", current, ARGV[at], known)
  end
  places[#places + 1] = known
end
for _, number in ipairs(read) do
  local log = logs[number]
  if seen(log, log.came) or log.changed then
    redis.call("HSET", states, number, cmsgpack.pack(log.merged, log.cuts, log.offsets, log.times))
  end
end
redis.call("PEXPIRE", current, string.format("%.0f", 2 * keep))
return {places, cuts}
