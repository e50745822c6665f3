-- Two values that all sidecars of a subscription share: KEYS[1] is its live value or its rate bucket.
-- ARGV "live", expected, value: sets the live value if it is as expected. Returns the value that is there now.
-- ARGV "take", wanted, rate per second, burst: takes tokens. Returns how many, and ms until there is one more (0 if it
-- took some). ackd.core.rate_bucket decides the same.
if ARGV[1] == "live" then
  local there = redis.call("GET", KEYS[1]) or ""
  if there == ARGV[2] then
    redis.call("SET", KEYS[1], ARGV[3], "KEEPTTL")
    there = ARGV[3]
  end
  return there
end

local wanted, rate, burst = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call("TIME")
local now_us = time[1] * 1000000 + time[2]
local tokens, seen_us = burst, now_us
local saved = redis.call("GET", KEYS[1])
if saved then tokens, seen_us = struct.unpack(">dI8", saved) end
tokens = math.min(burst, tokens + math.max(now_us - seen_us, 0) * rate / 1000000)
local granted = math.min(wanted, math.floor(tokens))
tokens = tokens - granted
-- The server forgets the bucket a second after it is full again: a new bucket is full, too.
local keep_ms = math.ceil((burst - tokens) * 1000 / rate) + 1000
redis.call("SET", KEYS[1], struct.pack(">dI8", tokens, now_us), "PX", string.format("%.0f", keep_ms))
local wait_ms = 0
if granted == 0 then wait_ms = math.max(math.ceil((1 - tokens) * 1000 / rate), 1) end
return { string.format("%.0f", granted), string.format("%.0f", wait_ms) }
