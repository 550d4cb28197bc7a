-- ARGV: batch, offset, count. Returns nil for an unknown batch, else per finished page
-- {id, client, state, url, meta, result, reason, message}.

local key = P .. ':batch:' .. ARGV[1]
if redis.call('EXISTS', key) == 0 then
  return false
end
local first = tonumber(ARGV[2])
local answer = {}
for _, line in ipairs(redis.call('LRANGE', key .. ':records', first, first + tonumber(ARGV[3]) - 1)) do
  local id = string.sub(line, 1, 64)
  local page = redis.call('HMGET', page_key(id), 'state', 'url', 'meta', 'result', 'reason',
    'message')
  answer[#answer + 1] = { id, string.sub(line, 65), unpack(page, 1, 6) }
end
return answer
