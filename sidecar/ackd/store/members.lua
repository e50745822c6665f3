-- Heartbeats of a subscription's sidecars. KEYS[1] = hash: name -> boot number, time of the heartbeat, packed values
-- (opaque here). Its siblings: `...:n` = hash of the last boot numbers, `...:l` = the live value (see flow.lua).
-- ARGV: "register", "forget" or a heartbeat; name; boot number; packed values.
local MEMBERS = KEYS[1]
local BOOTS = string.sub(MEMBERS, 1, -2) .. "n"
local what, name, boot = ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = redis.call("TIME")
local now_us = time[1] * 1000000 + time[2]

if what == "register" then
  -- Larger than the newest heartbeat's number and at least the time in ms, so that no number comes twice, even if the
  -- store lost the counter.
  local last = tonumber(redis.call("HGET", BOOTS, name) or "0")
  local entry = redis.call("HGET", MEMBERS, name)
  local beats = entry and struct.unpack(">I8", entry) or 0
  local new = math.max(last + 1, beats + 1, math.floor(now_us / 1000))
  redis.call("HSET", BOOTS, name, string.format("%.0f", new))
  return string.format("%.0f", new)
end

if what == "forget" then
  local entry = redis.call("HGET", MEMBERS, name)
  if entry and struct.unpack(">I8", entry) == boot then redis.call("HDEL", MEMBERS, name) end
  return "1"
end

-- Compare with the newest heartbeat, not with the counter: a sidecar may have sent its registration twice.
local entry = redis.call("HGET", MEMBERS, name)
local newest = entry and struct.unpack(">I8", entry) or 0
local live = redis.call("GET", string.sub(MEMBERS, 1, -2) .. "l") or ""
local answer = { string.format("%.0f", now_us), newest > boot and "1" or "0", live }
local all = redis.call("HGETALL", MEMBERS)
for index = 1, #all do answer[#answer + 1] = all[index] end
if newest <= boot then
  redis.call("HSET", MEMBERS, name, struct.pack(">I8I8", boot, now_us) .. ARGV[4])
end
return answer
