-- The place (partition:offset) under which a broker's message id is known; an unknown id gets the given place.
-- KEYS[1] = name of the hashes but for their number; each hash (id -> place) is of a period of keep_ms.
-- ARGV: keep_ms, then pairs of id and place. Returns the place of each id.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local keep = tonumber(ARGV[1])
local index = math.floor(now / keep)
local current = KEYS[1] .. string.format("%.0f", index)
local before = KEYS[1] .. string.format("%.0f", index - 1)
local answer = {}
for at = 2, #ARGV, 2 do
  local known = redis.call("HGET", current, ARGV[at])
  if not known then
    known = redis.call("HGET", before, ARGV[at]) or ARGV[at + 1]
    redis.call("HSET", current, ARGV[at], known)
  end
  answer[#answer + 1] = known
end
redis.call("PEXPIRE", current, string.format("%.0f", 2 * keep))
return answer
