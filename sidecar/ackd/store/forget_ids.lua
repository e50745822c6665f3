-- Removes what is known of a topic's message ids (`ids.lua` stands before), some buckets a call. Returns how many slices
-- are left.
for _, block in ipairs(redis.call("HKEYS", index)) do
  local known = known_block(tonumber(block))
  known.used = true
  for _, each in ipairs(known.slices) do
    known.old[#known.old + 1] = {slice = each.slice, bucket = 2 ^ each.bits}
  end
  known.slices = {}
end
write_blocks()
local left = 0
for _, known in pairs(blocks) do left = left + #known.old end
if left == 0 then redis.call("UNLINK", index) end
return left
