-- Progress notes of one partition; ackd.core.record.notes decides the same. KEYS[1] = a hash: offset -> fence
-- and note, "b" -> bytes of all notes; KEYS[2] = a sorted set: offset -> when it was written.
-- ARGV: "put", bytes_max, offset, fence, note [, offset, fence, note ...] -> how many were dropped;
-- "get", offset ... -> a note or false for each; "drop", offset ... -> 0.
local notes, order = KEYS[1], KEYS[2]
local HEAD = 8

local function drop(offset)
  local there = redis.call("HGET", notes, offset)
  if there then
    redis.call("HDEL", notes, offset)
    redis.call("HINCRBY", notes, "b", HEAD - #there)
  end
  redis.call("ZREM", order, offset)
end

if ARGV[1] == "get" then
  local found = {}
  for i = 2, #ARGV do
    local there = redis.call("HGET", notes, ARGV[i])
    found[i - 1] = there and string.sub(there, HEAD + 1)
  end
  return found
end

if ARGV[1] == "drop" then
  for i = 2, #ARGV do drop(ARGV[i]) end
  return 0
end

local most, dropped = tonumber(ARGV[2]), 0
local last = redis.call("ZREVRANGE", order, 0, 0, "WITHSCORES")
local number = last[2] and tonumber(last[2]) or 0
for i = 3, #ARGV, 3 do
  local offset, fence, note = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local there = redis.call("HGET", notes, offset)
  if not there or struct.unpack(">I8", there) <= fence then
    drop(offset)
    if note ~= "" then
      number = number + 1
      redis.call("HSET", notes, offset, struct.pack(">I8", fence) .. note)
      redis.call("ZADD", order, string.format("%.0f", number), offset)
      local bytes = redis.call("HINCRBY", notes, "b", #note)
      while bytes > most and redis.call("ZCARD", order) > 1 do
        drop(redis.call("ZRANGE", order, 0, 0)[1])
        dropped = dropped + 1
        bytes = tonumber(redis.call("HGET", notes, "b"))
      end
    end
  end
end
return dropped
