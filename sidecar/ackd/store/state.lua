-- ledger, 2: the state of a call that its functions share, set anew by each call of a flush.
--
-- Making the functions again for each call would cost more than most calls. From here to the end of
-- part 6 all is one function: Lua walks a list to find a local of the enclosing function for one that
-- is made, and takes one from a level above that without. So little as possible is shared.
local function flush()
local META, BASE, term
local h_rollback_epoch, epoch, fence_floor, h_fence, watermark, dropped, grace_until, repair_until, now
-- The texts that workers reported (texts.lua). `any`: this call brings some, or the record has some.
local E = { any = false, over = {} }
local lists -- fields of chunks -> whether they are listed, as far as that was asked

local any_busy = false -- there is upkeep in one of the calls
for number_ = 1, #KEYS do
  local arg = ARGV[number_]
  for at = 34 + byte(arg, 33), #arg, Size.OP do
    if byte(arg, at) >= Verbs.UPKEEP_FIRST then any_busy = true end
  end
end
