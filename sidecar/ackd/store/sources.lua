-- The partition numbers of a topic's brokers and queues, as `core/sources.py` gives them.
-- KEYS[1] = beginning of the names. The hash that ends in "b": broker -> when it was last found in the route, number of
-- its queues, its blocks. It has no TTL, as records go by it. The one that ends in "g" has the logs (`places.lua`).
-- ARGV: name and number of queues of each broker that a sidecar has found now. Returns of each known one its name, its
-- queues, for how many ms nobody has found it, its blocks.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local sources = KEYS[1] .. "b"
local known, names, taken = {}, {}, {}
local found = redis.call("HGETALL", sources)
for at = 1, #found, 2 do
  local source = {blocks = {}}
  source.seen, source.queues, source.blocks = cmsgpack.unpack(found[at + 1])
  for _, block in ipairs(source.blocks) do taken[block] = true end
  names[#names + 1] = found[at]
  known[found[at]] = source
end
if #names > 0 or #ARGV > 2 then
  for _, number in ipairs(redis.call("HKEYS", KEYS[1] .. "g")) do
    taken[math.floor(tonumber(number) % Source.COPIES / Source.BLOCK)] = true
  end
end

local function free()
  for block = 0, Source.BLOCKS - 1 do
    if not taken[block] then return block end
  end
end

for at = 1, #ARGV, 2 do
  local name, queues = ARGV[at], tonumber(ARGV[at + 1])
  local source = known[name]
  local changed = not source or queues > source.queues
  if not source then
    source = {seen = 0, queues = 0, blocks = {}}
    known[name] = source
    names[#names + 1] = name
  end
  while #source.blocks * Source.BLOCK < queues do
    local block = free()
    if not block then return redis.error_reply("ERR a topic has more than " .. Source.BLOCKS .. " blocks of queues") end
    source.blocks[#source.blocks + 1] = block
    taken[block] = true
  end
  source.queues = math.max(source.queues, queues)
  if now - source.seen >= Source.SEEN_EACH_MS then
    source.seen, changed = now, true
  end
  if changed then redis.call("HSET", sources, name, cmsgpack.pack(source.seen, source.queues, source.blocks)) end
end

local answer = {}
for _, name in ipairs(names) do
  local source = known[name]
  answer[#answer + 1] = {name, source.queues, math.max(now - source.seen, 0), source.blocks}
end
return answer
