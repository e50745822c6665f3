-- Heartbeats of subscriptions' sidecars: a beat says that its sidecar lives, and gets back what has changed.
-- Each of KEYS is a subscription's hash `e`: name -> boot number, version of the entry, packed values (opaque here). Its
-- siblings: `h` = version of the last change, sum of all entries' versions; `t` = sorted set: name -> time of the last
-- beat; `c` = sorted set: name -> version of its entry; `g` = sorted set: name that was removed -> version of that;
-- `n` = hash of the last boot numbers, `l` = the live value (see flow.lua); `q` = sorted set: name -> messages that lie
-- ready there, without those that have none.
-- ARGV: "register" or "forget", name, boot number; or "heartbeat" and for each key: name, boot number, the version that
-- the caller has seen (0: nothing), the version of its entry in the store (0: unknown), its entry (empty: as it was), the
-- number of its ready messages (empty: as it was), and "1" if it wants to hear where messages lie ready.
-- Heartbeats answer the time, and for each what was there before it. If nothing has changed and nobody is silent: the
-- live value, behind it some names with numbers of ready messages, if there are any. Else: these two, whether a newer
-- boot has the name, `h`, the kind of answer, version of the own entry after this beat, time of the own last beat,
-- changed entries, removed names, silent names with times.
local call, pack, unpack_numbers = redis.call, struct.pack, struct.unpack
local time = call("TIME")
local now_us = time[1] * 1000000 + time[2]
local function text(number) return string.format("%.0f", number) end
local NOW, SILENT = text(now_us), text(now_us - Members.SILENT_US)

-- No version comes twice, even if the store was set back: it is at least the time.
local function after(version) return math.max(version + 1, now_us) end

local function keep_head(base, version, sum) call("SET", base .. "h", pack(">I8I8", version, sum)) end

-- Who has an entry but no time of a beat, since that key was lost, must become silent if it does not beat.
local function heal(base)
  local all = call("ZRANGE", base .. "c", 0, -1, "WITHSCORES")
  for index = 1, #all, 2 do call("ZADD", base .. "t", "NX", all[index + 1], all[index]) end
end

local function register(key, name)
  local entry = call("HGET", key, name)
  local boots = string.sub(key, 1, -2) .. "n"
  -- Larger than the newest heartbeat's number and at least the time in ms, so that no number comes twice, even if the
  -- store lost the counter.
  local newest = entry and unpack_numbers(">I8", entry) or 0
  local last = tonumber(call("HGET", boots, name) or "0")
  local new = text(math.max(last + 1, newest + 1, math.floor(now_us / 1000)))
  call("HSET", boots, name, new)
  return new
end

local function forget(key, name, boot)
  local base = string.sub(key, 1, -2)
  local head, entry = call("GET", base .. "h"), call("HGET", key, name)
  if not head or not entry then return "1" end
  local version, sum = unpack_numbers(">I8I8", head)
  local newest, own = unpack_numbers(">I8I8", entry)
  if newest ~= boot then return "1" end
  version = after(version)
  call("HDEL", key, name)
  call("ZREM", base .. "t", name)
  call("ZREM", base .. "c", name)
  call("ZREM", base .. "q", name)
  call("ZADD", base .. "g", text(version), name)
  -- Who has not heard of a name that is dropped here will see that the sum differs.
  if call("ZCARD", base .. "g") > Members.GONE_MAX then call("ZPOPMIN", base .. "g") end
  keep_head(base, version, sum - own % Members.SUM)
  return "1"
end

-- All entries; repairs the sum, and the times of beats, where keys were lost one by one. Its new version makes every
-- other sidecar compare.
local function everything(key, base, version, sum)
  local all, there = call("HGETALL", key), 0
  for index = 1, #all, 2 do
    local _, each = unpack_numbers(">I8I8", all[index + 1])
    there = there + each % Members.SUM
  end
  if call("ZCARD", base .. "t") < #all / 2 then heal(base) end
  if there ~= sum then
    version, sum = after(version), there
    keep_head(base, version, sum)
  end
  return all, version, sum
end

local function changes(key, base, since)
  local gone, found = call("ZRANGEBYSCORE", base .. "g", since, "+inf"), {}
  for _, name in ipairs(call("ZRANGEBYSCORE", base .. "c", since, "+inf")) do
    found[#found + 1] = name
    found[#found + 1] = call("HGET", key, name) or ""
  end
  return found, gone
end

local NONE = {}

local function silent(base) return call("ZRANGEBYSCORE", base .. "t", "-inf", SILENT, "WITHSCORES") end

-- Where messages lie ready: a few of these sidecars, of neighbouring numbers. The moment of the call says which, so that
-- not all who want some go to the same one; large numbers come more often. Who has fallen silent grants nothing; if it
-- comes back it tells its number again. A full server lets `ZREM` pass, and then all that follows: so it comes last.
local function ready_ones(base, quiet, wants)
  if wants == "" then return NONE end
  for index = 1, #quiet, 2 do call("ZREM", base .. "q", quiet[index]) end
  local places, first = call("ZCARD", base .. "q") - Members.READY_MAX + 1, 0
  if places > 1 then first = math.floor((now_us % 9973 / 9973) ^ 2 * places) end
  return call("ZREVRANGE", base .. "q", first, first + Members.READY_MAX - 1, "WITHSCORES")
end

local function tell_ready(base, name, ready)
  if ready == "0" then
    call("ZREM", base .. "q", name)
  elseif ready ~= "" then
    call("ZADD", base .. "q", ready, name)
  end
end

local function heartbeat(key, name, boot, since, claimed, packed, ready, wants)
  local base = string.sub(key, 1, -2)
  local found = call("MGET", base .. "h", base .. "l")
  local head, live = found[1], found[2] or ""
  local version, sum, newest, own = 0, 0, 0, 0
  if head then version, sum = unpack_numbers(">I8I8", head) end
  if version == since and claimed > 0 and claimed <= since and packed == "" then
    -- All is as the caller knows it, its own entry too.
    local quiet = silent(base)
    if call("ZADD", base .. "t", NOW, name) == 1 then heal(base) end
    local found_ready = ready_ones(base, quiet, wants)
    tell_ready(base, name, ready)
    if #quiet == 0 then return #found_ready == 0 and live or { live, found_ready } end
    return { live, found_ready, "0", head, Members.CHANGES, text(claimed), "", NONE, NONE, quiet }
  end

  local entry = call("HGET", key, name)
  if entry then newest, own = unpack_numbers(">I8I8", entry) end
  -- Compare with the newest heartbeat, not with the counter: a sidecar may have sent its registration twice.
  local superseded, own_us = newest > boot, ""
  if superseded then
    own_us = call("ZSCORE", base .. "t", name) or ""
  elseif claimed > 0 and (newest ~= boot or own ~= claimed) then
    -- The store has another entry than its sidecar thinks, so it was set back or has lost data: nothing is written
    -- before the sidecar has seen that.
    return { "", NONE, "0", "", Members.UNKNOWN, "0", "", NONE, NONE, NONE }
  end

  local kind, changed, gone = Members.CHANGES, NONE, NONE
  if since == 0 or since > version then
    kind = Members.ALL
    changed, version, sum = everything(key, base, version, sum)
    head = pack(">I8I8", version, sum)
  elseif since < version then
    changed, gone = changes(key, base, "(" .. text(since))
  end
  local quiet = silent(base)

  if not superseded then
    if packed ~= "" and (not entry or newest ~= boot or string.sub(entry, 17) ~= packed) then
      sum = sum - own % Members.SUM
      own = after(version)
      keep_head(base, own, sum + own % Members.SUM)
      call("HSET", key, name, pack(">I8I8", boot, own) .. packed)
      call("ZADD", base .. "c", text(own), name)
      call("ZREM", base .. "g", name)
    end
    if call("ZADD", base .. "t", NOW, name) == 1 and entry then heal(base) end
  end
  local found_ready = ready_ones(base, quiet, wants)
  if not superseded then tell_ready(base, name, ready) end
  local newer = superseded and "1" or "0"
  return { live, found_ready, newer, head or "", kind, text(own), own_us, changed, gone, quiet }
end

if ARGV[1] == "register" then return register(KEYS[1], ARGV[2]) end
if ARGV[1] == "forget" then return forget(KEYS[1], ARGV[2], tonumber(ARGV[3])) end
local answers = { text(now_us) }
for index, key in ipairs(KEYS) do
  local at = 7 * index - 5
  local fine, answer = pcall(heartbeat, key, ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]),
    tonumber(ARGV[at + 3]), ARGV[at + 4], ARGV[at + 5], ARGV[at + 6])
  if not fine then answer = redis.error_reply(type(answer) == "table" and answer.err or answer) end
  answers[index + 1] = answer
end
return answers
