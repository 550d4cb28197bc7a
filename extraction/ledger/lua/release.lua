-- ARGV: kind ('unused' or a reason of loss), message, max_attempts, then per lease: id, token.
-- Returns how many leases were still held.

local kind, message, max_attempts = ARGV[1], ARGV[2], tonumber(ARGV[3])
local now, held = now_ms(), 0
for at = 4, #ARGV, 2 do
  local id = ARGV[at]
  local page = redis.call('HMGET', page_key(id), 'state', 'token')
  if page[1] == 'leased' and page[2] == ARGV[at + 1] then
    held = held + 1
    if kind == 'unused' then
      give_back(id)
    else
      lose(id, kind, message, max_attempts, now)
    end
  end
end
write_sums(now)
return held
