-- The place (partition:offset) under which a broker's message id is known. An unknown id gets the place where it is
-- stored, in the partition of its log's generation: as `core/log_generations.py` says it, number by number.
-- KEYS[1] = beginning of the names. The hashes id -> place, of a period of keep_ms each, end in the period's number.
-- The hash of the logs ends in "g": partition number -> "merged;cuts;samples". It has no TTL: while a log is idle for
-- months it may be cut.
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
  log = {merged = 0, cuts = {}, samples = {}, came = {}}
  local merged, cuts, samples = (redis.call("HGET", states, number) or ""):match("^(%d+);([^;]*);(.*)$")
  if merged then
    log.merged = tonumber(merged)
    for cut in cuts:gmatch("%d+") do log.cuts[#log.cuts + 1] = tonumber(cut) end
    for offset, stored in samples:gmatch("(%d+):(%d+)") do
      log.samples[#log.samples + 1] = {offset = tonumber(offset), stored = tonumber(stored)}
    end
  end
  logs[number] = log
  read[#read + 1] = number
  return log
end

local function save(number, log)
  local cuts, samples = {}, {}
  for at, cut in ipairs(log.cuts) do cuts[at] = string.format("%.0f", cut) end
  for at, sample in ipairs(log.samples) do samples[at] = string.format("%.0f:%.0f", sample.offset, sample.stored) end
  local text = string.format("%.0f;", log.merged) .. table.concat(cuts, ",") .. ";" .. table.concat(samples, ",")
  redis.call("HSET", states, number, text)
end

-- The generation of a message, and whether it is the first one of a new generation; nil if there are too many.
local function generation_of(log, offset, stored)
  local newest = log.merged + #log.cuts
  if stored == 0 then return newest, false end
  for at, cut in ipairs(log.cuts) do
    if cut >= stored then return log.merged + at - 1, false end
  end
  local highest
  for _, sample in ipairs(log.samples) do
    if sample.offset >= offset then
      highest = sample.stored
      break
    end
  end
  if not highest or stored <= highest then return newest, false end
  if newest >= Log.GENERATIONS_MAX then return nil end
  log.cuts[#log.cuts + 1] = highest
  if #log.cuts > Log.CUTS_MAX then
    table.remove(log.cuts, 1)
    log.merged = log.merged + 1
  end
  log.samples = {{offset = offset, stored = stored}}
  log.changed = true
  return newest + 1, true
end

local function thin(samples)
  local top, drop, least = samples[#samples].offset, nil, nil
  for at = 2, #samples - Log.DENSE do
    local width = (samples[at + 1].offset - samples[at - 1].offset) / (top - samples[at].offset)
    if not drop or width < least then drop, least = at, width end
  end
  table.remove(samples, drop)
end

-- Takes a sample of what came in this call.
local function seen(log)
  local last, high, top = log.cuts[#log.cuts] or 0, -1, -1
  for _, message in ipairs(log.came) do
    if message.stored > last then
      high = math.max(high, message.offset)
      top = math.max(top, message.stored)
    end
  end
  local highest = log.samples[#log.samples]
  if high < 0 or (highest and high <= highest.offset) then return end
  log.samples[#log.samples + 1] = {offset = high, stored = math.max(top, highest and highest.stored or 0)}
  if #log.samples > Log.SAMPLES_MAX then thin(log.samples) end
  log.changed = true
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
        log.came[#log.came + 1] = {offset = offset, stored = stored}
        if cut then cuts[#cuts + 1] = string.format("%s:%.0f:%.0f", number, offset, generation) end
        number = string.format("%.0f", number + generation * Log.GENERATION)
      end
      known = number .. ":" .. ARGV[at + 2]
    end
    redis.call("HSET", current, ARGV[at], known)
  end
  places[#places + 1] = known
end
for _, number in ipairs(read) do
  local log = logs[number]
  seen(log)
  if log.changed then save(number, log) end
end
redis.call("PEXPIRE", current, string.format("%.0f", 2 * keep))
return {places, cuts}
