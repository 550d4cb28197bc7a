-- ARGV: batch, max_queued, max_bytes, then per page: id, client, class, queue, body hash, body,
-- meta, url, digest of the url, schema. Returns per page {state, created}, or {'full', what}.

local FIELDS = 10
local now = now_ms()
local batch, max_queued, max_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local new_pages, new_bytes, seen = 0, 0, {}
for at = 4, #ARGV, FIELDS do
  local id = ARGV[at]
  if not seen[id] and redis.call('EXISTS', page_key(id)) == 0 then
    seen[id] = true
    new_pages = new_pages + 1
    new_bytes = new_bytes + string.len(ARGV[at + 5])
  end
end
if new_pages > 0 then
  local used = redis.call('HMGET', P .. ':counters', 'queued', 'body_bytes', 'result_bytes')
  if tonumber(used[1] or '0') + new_pages > max_queued then
    return { 'full', 'pages' }
  end
  if tonumber(used[2] or '0') + tonumber(used[3] or '0') + new_bytes > max_bytes then
    return { 'full', 'bytes' }
  end
end

if batch ~= '' then
  redis.call('HSETNX', P .. ':batch:' .. batch, 'created', now)
  redis.call('ZADD', P .. ':batches', now, batch)
end

local answer = {}
for at = 4, #ARGV, FIELDS do
  local id, client, class, queue = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local key = page_key(id)
  local state = redis.call('HGET', key, 'state')
  local created = 0
  if not state then
    created, state = 1, 'queued'
    local body = P .. ':body:' .. ARGV[at + 4]
    if redis.call('HSETNX', body, 'data', ARGV[at + 5]) == 1 then
      count('body_bytes', string.len(ARGV[at + 5]))
    end
    redis.call('HINCRBY', body, 'refs', 1)
    redis.call('HINCRBY', P .. ':schemas', ARGV[at + 9], 1)
    local place = enqueue(id, class, queue, false)
    redis.call('HSET', key, 'state', state, 'stream', place[1], 'entry', place[2],
      'body', ARGV[at + 4], 'schema', ARGV[at + 9], 'holds', '1', 'meta', ARGV[at + 6], 'url', ARGV[at + 7],
      'class', class, 'queue', queue, 'submitted', now)
    if ARGV[at + 8] ~= '' then
      redis.call('HSET', P .. ':latest', ARGV[at + 8], id)
    end
    count('queued', 1)
    count('submitted', 1)
  else
    count('resubmitted', 1)
  end
  if batch ~= '' then
    local name = P .. ':batch:' .. batch
    if redis.call('SADD', name .. ':ids', id .. client) == 1 then
      redis.call('HINCRBY', name, 'total', 1)
      if state ~= 'done' and state ~= 'failed' then
        redis.call('RPUSH', P .. ':waiters:' .. id, batch .. '\0' .. client)
      end
      if state ~= 'queued' and state ~= 'leased' then
        batch_finished(batch, id, client, state, now)
      end
    end
  end
  answer[#answer + 1] = { state, created }
end
return answer
