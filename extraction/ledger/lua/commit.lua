-- ARGV: id, token, state, result. Returns 1 when the result is the page's record: written now, or
-- by an earlier run of this very call whose answer was lost. 0 refuses a lease that has ended.

local id, token, state, result = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local key = page_key(id)
local page = redis.call('HMGET', key, 'state', 'token', 'stream', 'entry')
if page[2] ~= token or page[1] ~= 'leased' then
  if page[2] == token and (page[1] == 'done' or page[1] == 'failed') then
    return 1
  end
  count('zombie_commits', 1)
  return 0
end

redis.call('ZREM', P .. ':leases', id)
unqueue(page[3], page[4])
release_inputs(id)
redis.call('HSET', key, 'result', result, 'stream', '', 'entry', '')
count('result_bytes', string.len(result))
finish(id, state, now_ms())
return 1
