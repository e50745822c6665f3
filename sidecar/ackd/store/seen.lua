-- Deduplication keys of acked messages; decides what ackd.core.dedup_window decides. KEYS[1] = meta hash `...:m`: c =
-- newest ack time, "l" + topic id and partition = its reset epoch and when that began. Keys with the same tag:
--   g<length>.<index>  hash of one period: key -> digest of the message's coordinate (8 bytes), ack time (6 bytes)
-- A window is covered by `GENERATIONS` periods of `length` ms. Times are in ms.
local call, sub, floor, max = redis.call, string.sub, math.floor, math.max
local META = KEYS[1]
local BASE = sub(META, 1, -2)
local GENERATIONS = 8

local time = call("TIME")
local now = time[1] * 1000 + floor(time[2] / 1000)
local what, window = ARGV[1], tonumber(ARGV[2])
local length = math.ceil(window / GENERATIONS)
local last = floor(now / length)

local function name(index)
  return string.format("%sg%.0f.%.0f", BASE, length, index)
end

local function keep(key)
  call("PEXPIRE", key, string.format("%.0f", 2 * window))
end

local newest = tonumber(call("HGET", META, "c") or 0)

-- When the epoch of this partition began: acks up to then belong to an earlier epoch and do not count.
local function since(ledger, epoch)
  local field = "l" .. ledger
  local known = call("HGET", META, field)
  local known_epoch, from
  if known then known_epoch, from = struct.unpack(">I4I6", known) end
  if known_epoch ~= epoch then
    from = (not known and epoch == 0) and 0 or max(now, newest)
    call("HSET", META, field, struct.pack(">I4I6", epoch, from))
    keep(META)
  end
  return from
end

if what == "look" then
  -- ARGV: window, count of partitions, (topic id and partition, epoch)..., then a word for each question: key,
  -- digest, index of the partition (2 bytes). Returns a string with 1 for each repeat, else 0.
  local count, after = tonumber(ARGV[3]), {}
  for index = 1, count do
    after[index - 1] = since(ARGV[2 + 2 * index], tonumber(ARGV[3 + 2 * index]))
  end
  local first = 4 + 2 * count
  local keys, repeats = {}, {}
  for at = first, #ARGV do
    keys[#keys + 1] = sub(ARGV[at], 1, 16)
    repeats[#keys] = "0"
  end
  for index = last - GENERATIONS, last do
    local generation = name(index)
    for from = 1, #keys, 1000 do
      local found = call("HMGET", generation, unpack(keys, from, math.min(from + 999, #keys)))
      for at = 1, #found do
        local value = found[at]
        if value then
          local ask = ARGV[first + from + at - 2]
          local least = max(now - window, after[struct.unpack(">I2", ask, 25)])
          if sub(value, 1, 8) ~= sub(ask, 17, 24) and struct.unpack(">I6", value, 9) > least then
            repeats[from + at - 1] = "1"
          end
        end
      end
    end
  end
  return table.concat(repeats)
end

-- remember. ARGV: window, bound of keys, then a word for each ack: key, digest, ack time. Returns how many it kept.
local most = tonumber(ARGV[3])
local current = name(last)
local wanted = #ARGV - 3
local room, sizes = most, {}
for index = last - GENERATIONS, last do
  sizes[index] = call("HLEN", name(index))
  room = room - sizes[index]
end
if sizes[last] == 0 then
  -- The server would expire old periods by itself, but that blocks it; UNLINK frees them in the background.
  for index = last - 2 * GENERATIONS - 1, last - GENERATIONS - 1 do call("UNLINK", name(index)) end
end
for index = last - GENERATIONS, last - 1 do
  if room >= wanted then break end
  if sizes[index] > 0 then
    call("UNLINK", name(index))
    room = room + sizes[index]
  end
end
local kept = max(math.min(room, wanted), 0)
for at = 4, 3 + kept do
  local word = ARGV[at]
  call("HSET", current, sub(word, 1, 16), sub(word, 17, 30))
  newest = max(newest, struct.unpack(">I6", word, 25))
end
if kept > 0 then
  call("HSET", META, "c", string.format("%.0f", newest))
  keep(META)
  keep(current)
end
return string.format("%.0f", kept)
