-- Remove a record if it is as it was seen. KEYS: the meta hash, then the record's other keys;
-- ARGV: the two parts of its head. Every call of a sidecar changes the second one.
local head = redis.call("HMGET", KEYS[1], "c", "h")
if (head[1] or "") ~= ARGV[1] or (head[2] or "") ~= ARGV[2] then return 0 end
for _, key in ipairs(KEYS) do redis.call("UNLINK", key) end
return 1
