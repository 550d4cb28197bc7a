-- ARGV: per page: id, token, state, result. Returns per page 1 when the result is the page's
-- record: written now, or by an earlier run of this very call whose answer was lost. 0 refuses a
-- lease that has ended.

local now, answer = now_ms(), {}
local ended, places, pages = {}, {}, {}
for at = 1, #ARGV, 4 do
  local id, token = ARGV[at], ARGV[at + 1]
  local page = pages[id] or redis.call('HMGET', page_key(id), 'state', 'token', 'body', 'schema',
    'queue', 'capped')
  pages[id] = page
  local valid = page[2] == token and page[1] == 'leased'
  if valid then
    page[1] = ARGV[at + 2]
    ended[#ended + 1], places[#places + 1] = id, at
  elseif page[2] == token and (page[1] == 'done' or page[1] == 'failed') then
    valid = true
  else
    count('zombie_commits', 1)
  end
  answer[#answer + 1] = valid and 1 or 0
end

-- First of all writes, also where nothing is to end: what follows goes through a full Redis.
redis.call('ZREM', P .. ':leases', '', unpack(ended))
if #ended > 0 then
  local terminal = {}
  for at, id in ipairs(ended) do
    local state, result, page = ARGV[places[at] + 2], ARGV[places[at] + 3], pages[id]
    release_inputs(page[3], page[4])
    redis.call('HSET', page_key(id), 'state', state, 'finished', now, 'result', result)
    count('result_bytes', string.len(result))
    if page[6] == '1' then
      uncap(page[5])
    end
    finish(id, state)
    terminal[#terminal + 1] = now
    terminal[#terminal + 1] = id
  end
  redis.call('ZADD', P .. ':terminal', unpack(terminal))
end
write_sums(now)
return answer
