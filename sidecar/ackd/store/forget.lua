-- Deletes a record if no sidecar has changed it since it was read. KEYS: the meta hash, then the record's other keys.
-- ARGV: the two parts of its head as they were read; every call of a sidecar changes the second part.
-- Returns 1 if the record was deleted, else 0.
local head = redis.call("HMGET", KEYS[1], "c", "h")
if (head[1] or "") ~= ARGV[1] or (head[2] or "") ~= ARGV[2] then return 0 end
for _, key in ipairs(KEYS) do redis.call("UNLINK", key) end
return 1
