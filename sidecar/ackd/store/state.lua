-- apply, part 2: variables that the functions of parts 3 to 8 share. `apply` (part 8) sets them anew for each call
-- of a flush.
--
-- The functions are made once for each flush, as making them takes longer than most calls. `flush` encloses them
-- all (it ends with part 8). Whenever Lua makes a function, it searches a list for each local that the function
-- takes from `flush`, but not for those from above it. So as few variables as possible are declared here.
local function flush()
local META, BASE, term
local h_rollback_epoch, epoch, fence_floor, h_fence, watermark, dropped, grace_until, repair_until, now
-- Texts that applications reported (texts.lua). `any`: this call brings some, or the record has some. `over`:
-- offsets that this call finishes.
local E = { any = false, over = {} }
local lists -- field of a chunk -> true if META lists it; nil = not asked yet

local any_busy = false -- a call of this flush has an upkeep verb (part 6)
for number_ = 1, #KEYS do
  local arg = ARGV[number_]
  for at = 34 + byte(arg, 33), #arg, Size.OP do
    if byte(arg, at) >= Verbs.UPKEEP_FIRST then any_busy = true end
  end
end
