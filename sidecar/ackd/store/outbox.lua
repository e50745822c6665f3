-- The outbox of a broker; decides what ackd.core.outbox decides. The last argument is the server's run.
-- KEYS[1] = meta hash `...:m`: n last number, h server run, c clock in ms, t term, o owner, u end of the owner's lease,
-- b bytes of all bodies, q the sidecar that asked last, z the number of its question. Keys with the same tag:
--   d  sorted set of waiting messages, score = due    f  sorted set of taken messages, score = due
--   x  sorted set of failed messages, score = kept until
--   e  hash: number -> body                           w  set of the numbers in doubt
--   r  hash: number -> result                         s  sorted set of results, score = kept until
--   t  hash: idempotency key -> first number, time    y  sorted set of those keys, score = kept until
-- Message numbers have 16 digits, so that a sorted set has members of one score in their order.
local call, format = redis.call, string.format
local META = KEYS[1]
local BASE = string.sub(META, 1, -2)
local DUE, FLIGHT, FAILED, BODY, DOUBT = BASE .. "d", BASE .. "f", BASE .. "x", BASE .. "e", BASE .. "w"
local RESULT, RESULT_AT, IDEMPOTENCY, IDEMPOTENCY_UNTIL = BASE .. "r", BASE .. "s", BASE .. "t", BASE .. "y"
local PRUNE_MAX, RUN_NUMBERS = 100, 1000000000
local run = table.remove(ARGV)

local meta = call("HMGET", META, --[[OUTBOX]] nil)
local last, clock, term = tonumber(meta[Outbox.LAST] or 0), tonumber(meta[Outbox.CLOCK] or 0), tonumber(meta[Outbox.TERM] or 0)
local owner, until_ms, bytes = meta[Outbox.OWNER] or "", tonumber(meta[Outbox.UNTIL] or 0), tonumber(meta[Outbox.BYTES] or 0)
local asker, asked = meta[Outbox.ASKER] or "", tonumber(meta[Outbox.ASKED] or 0)
if meta[Outbox.RUN] ~= run and last > 0 then last = last + RUN_NUMBERS end
local time = call("TIME")
local now = math.max(clock, time[1] * 1000 + math.floor(time[2] / 1000))
local what = ARGV[1]

local function text(number)
  return format("%.0f", number)
end

local function member(number)
  return format("%016.0f", number)
end

local function save()
  call("HSET", META, "n", text(last), "c", text(now), "t", text(term), "o", owner,
    "u", text(until_ms), "b", text(bytes), "q", asker, "z", text(asked), "h", run)
end

local function drop_body(number)
  bytes = bytes - call("HSTRLEN", BODY, number)
  call("HDEL", BODY, number)
  call("SREM", DOUBT, number)
end

-- Puts a taken message back: it waits again. `in_doubt`: its sender may have sent it.
local function back(number, in_doubt)
  local due = call("ZSCORE", FLIGHT, number)
  if not due then return end
  call("ZREM", FLIGHT, number)
  call("ZADD", DUE, due, number)
  if in_doubt then call("SADD", DOUBT, number) end
end

-- Puts all taken messages back, but for the numbers in `but`.
local function all_back(in_doubt, but)
  for _, number in ipairs(call("ZRANGE", FLIGHT, 0, -1)) do
    if not (but and but[number]) then back(number, in_doubt) end
  end
end

if what == "enqueue" then
  -- ARGV: messages_max, bytes_max, idempotency_ms, then for each request its idempotency key, count of messages,
  -- (delay, body)... Returns the time, then for each request first number, time of acceptance, reason of refusal.
  local messages_max, bytes_max, idempotency_ms = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
  for _, idempotency_key in ipairs(call("ZRANGEBYSCORE", IDEMPOTENCY_UNTIL, "-inf", text(now), "LIMIT", 0, PRUNE_MAX)) do
    call("ZREM", IDEMPOTENCY_UNTIL, idempotency_key)
    call("HDEL", IDEMPOTENCY, idempotency_key)
  end
  local count = call("HLEN", BODY)
  local answer = { text(now) }
  local at = 5
  while at <= #ARGV do
    local idempotency_key, many = ARGV[at], tonumber(ARGV[at + 1])
    at = at + 2
    local size = 0
    for index = at + 1, at + 2 * many, 2 do size = size + #ARGV[index] end
    local known = idempotency_key ~= "" and call("HGET", IDEMPOTENCY, idempotency_key)
    local first, why, when = "0", "", text(now)
    if known then
      first, when = string.match(known, "^(%d+) (%d+)$")
      why = "replayed"
    elseif count + many > messages_max then
      why = "messages"
    elseif bytes + size > bytes_max then
      why = "bytes"
    else
      first = text(last + 1)
      for index = at, at + 2 * many - 2, 2 do
        last = last + 1
        local number = member(last)
        call("HSET", BODY, number, ARGV[index + 1])
        call("ZADD", DUE, text(now + tonumber(ARGV[index])), number)
      end
      count, bytes = count + many, bytes + size
      if idempotency_key ~= "" then
        call("HSET", IDEMPOTENCY, idempotency_key, first .. " " .. when)
        call("ZADD", IDEMPOTENCY_UNTIL, text(now + idempotency_ms), idempotency_key)
      end
    end
    answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = first, when, why
    at = at + 2 * many
  end
  save()
  return answer
end

-- Begins the answer to a take: term, holder, time, next due time, counts of waiting, due and failed messages, bytes.
local function load(mine)
  local first = call("ZRANGE", DUE, 0, 0, "WITHSCORES")
  return {
    text(mine), until_ms > now and owner or "", text(now), first[2] or "0",
    text(call("ZCARD", DUE)), text(call("ZCOUNT", DUE, "-inf", text(now))),
    text(call("ZCARD", FAILED)), text(bytes),
  }
end

if what == "take" then
  -- ARGV: owner, term, seq, lease_ms, bound of messages, bytes_max. If the sidecar lost an answer: then "have" and the
  -- numbers that it has; all other taken messages wait again.
  local me, known, seq, lease_ms = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
  local most, room = tonumber(ARGV[6]), tonumber(ARGV[7])
  if asker == me and seq <= asked then return load(0) end
  if owner ~= me or term ~= known then
    local idle = most == 0 or (call("ZCARD", DUE) == 0 and call("ZCARD", FLIGHT) == 0)
    local held = owner ~= "" and owner ~= me and until_ms > now
    if held or (idle and owner ~= me) then return load(0) end
    owner, term = me, math.max(term, known) + 1
    all_back(true)
  end
  asker, asked = me, seq
  until_ms = now + lease_ms
  if ARGV[8] then
    local have = {}
    for index = 9, #ARGV do have[member(tonumber(ARGV[index]))] = true end
    all_back(false, have)
  end
  local taken, messages = {}, {}
  local ready = call("ZRANGEBYSCORE", DUE, "-inf", text(now), "WITHSCORES", "LIMIT", 0, most)
  for index = 1, #ready, 2 do
    local number, due = ready[index], ready[index + 1]
    room = room - call("HSTRLEN", BODY, number)
    if #messages > 0 and room < 0 then break end
    call("ZREM", DUE, number)
    call("ZADD", FLIGHT, due, number)
    local at = #messages
    messages[at + 1], messages[at + 2] = number, due
    messages[at + 3] = text(call("SISMEMBER", DOUBT, number))
    messages[at + 4] = call("HGET", BODY, number)
  end
  save()
  local answer = load(term)
  for index = 1, #messages do answer[8 + index] = messages[index] end
  return answer
end

if what == "done" then
  -- ARGV: owner, term, lease_ms, result_ms, results_max, failed_ms, then (number, failed, result)...
  if owner ~= ARGV[2] or term ~= tonumber(ARGV[3]) then return "0" end
  local result_ms, results_max, failed_ms = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
  until_ms = now + tonumber(ARGV[4])
  for index = 8, #ARGV, 3 do
    local number, failed = member(tonumber(ARGV[index])), ARGV[index + 1] == "1"
    if call("ZREM", FLIGHT, number) == 1 or (not failed and call("ZREM", DUE, number) == 1) then
      if failed then
        call("ZADD", FAILED, text(now + failed_ms), number)
      else
        drop_body(number)
      end
      call("HSET", RESULT, number, ARGV[index + 2])
      call("ZADD", RESULT_AT, text(now + (failed and failed_ms or result_ms)), number)
    end
  end
  for _, number in ipairs(call("ZRANGEBYSCORE", FAILED, "-inf", text(now), "LIMIT", 0, PRUNE_MAX)) do
    call("ZREM", FAILED, number)
    drop_body(number)
  end
  local many = call("ZCARD", RESULT_AT) - results_max
  local oldest = call("ZRANGE", RESULT_AT, 0, PRUNE_MAX - 1, "WITHSCORES")
  for index = 1, #oldest, 2 do
    local number, kept = oldest[index], tonumber(oldest[index + 1])
    if (index - 1) / 2 >= many and kept > now then break end
    if not call("ZSCORE", FAILED, number) then
      call("ZREM", RESULT_AT, number)
      call("HDEL", RESULT, number)
    end
  end
  save()
  return "1"
end

if what == "release" then
  -- ARGV: owner, term, then numbers that the sidecar surely did not send; the other taken ones become in doubt
  if owner ~= ARGV[2] or term ~= tonumber(ARGV[3]) then return "0" end
  for index = 4, #ARGV do back(member(tonumber(ARGV[index])), false) end
  all_back(true)
  owner, until_ms = "", 0
  save()
  return "1"
end

local number = member(tonumber(ARGV[2]))

if what == "again" then
  if call("ZREM", FAILED, number) == 0 then return "0" end
  call("ZREM", RESULT_AT, number)
  call("HDEL", RESULT, number)
  call("ZADD", DUE, text(now), number)
  save()
  return "1"
end

-- status: state, due, in doubt, result
local result = call("HGET", RESULT, number) or ""
local in_doubt = text(call("SISMEMBER", DOUBT, number))
local due = call("ZSCORE", DUE, number)
if due then return { "waiting", due, in_doubt, result } end
due = call("ZSCORE", FLIGHT, number)
if due then return { "sending", due, in_doubt, result } end
if call("ZSCORE", FAILED, number) then return { "failed", "0", in_doubt, result } end
return { result ~= "" and "sent" or "", "0", "0", result }
