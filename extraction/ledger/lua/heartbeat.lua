-- ARGV: lease_ms, then per lease: id, token. Returns the ids whose lease is lost.

local deadline = now_ms() + tonumber(ARGV[1])
local lost = {}
-- As in claim: running work goes on when Redis is full.
redis.call('ZREM', P .. ':leases', '')
for at = 2, #ARGV, 2 do
  local page = redis.call('HMGET', page_key(ARGV[at]), 'state', 'token')
  if page[1] == 'leased' and page[2] == ARGV[at + 1] then
    redis.call('ZADD', P .. ':leases', 'XX', deadline, ARGV[at])
  else
    lost[#lost + 1] = ARGV[at]
  end
end
return lost
