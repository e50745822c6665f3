-- The sidecars of a subscription. KEYS[1] = hash of members, its siblings `...:n` = last boot numbers,
-- `...:l` = the live value (see flow.lua).
-- ARGV: what, name, boot, run, owned and note packed (opaque here).
local MEMBERS = KEYS[1]
local BOOTS = string.sub(MEMBERS, 1, -2) .. "n"
local what, name, boot = ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = redis.call("TIME")
local now_us = time[1] * 1000000 + time[2]

if what == "register" then
  -- At least the time and the newest that beats: a rollback or a loss of the counter gives no
  -- number twice.
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

-- The entry tells who is newest, not the counter: a registration may have been asked for twice.
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
