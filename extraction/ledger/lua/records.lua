-- ARGV: batch, offset, count. Returns nil for an unknown batch, else {next offset, pages}, per
-- finished page {id, client, state, url, meta, result, reason, message}.

local key = P .. ':batch:' .. ARGV[1]
if redis.call('EXISTS', key) == 0 then
  return false
end
local at, count = tonumber(ARGV[2]), tonumber(ARGV[3])
local answer = {}
while #answer < count do
  local lines = redis.call('LRANGE', key .. ':records', at, at + count - #answer - 1)
  if #lines == 0 then
    break
  end
  at = at + #lines
  for _, line in ipairs(lines) do
    if line ~= '' then
      local id = string.sub(line, 1, 64)
      local page = redis.call('HMGET', page_key(id), 'state', 'url', 'meta', 'result', 'reason',
        'message')
      answer[#answer + 1] = { id, string.sub(line, 65), unpack(page, 1, 6) }
    end
  end
end
return { at, answer }
