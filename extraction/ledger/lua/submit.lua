-- ARGV: batch, max_queued, max_bytes, pages_per_s, tokens_per_s, burst_s (rates of each tenant, 0
-- for none), then per page: id, client, queue, tokens, body hash, body, meta, url, digest of the
-- url, schema. Returns per page {state, created}, or {'full', what}, or {'limited', ms to wait}, or
-- {'closed'} for a batch that was cancelled.

local FIRST, FIELDS = 7, 10
local now = now_ms()
local batch, max_queued, max_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local rates = { pages = tonumber(ARGV[4]), tokens = tonumber(ARGV[5]) }
local burst_s = tonumber(ARGV[6])

if batch ~= '' and redis.call('HEXISTS', P .. ':batch:' .. batch, 'closed') == 1 then
  return { 'closed' }
end
local states, new_pages, new_bytes, tenants = {}, 0, 0, {}
for at = FIRST, #ARGV, FIELDS do
  local id = ARGV[at]
  if states[id] == nil then
    states[id] = redis.call('HGET', page_key(id), 'state')
    if not states[id] then
      new_pages = new_pages + 1
      new_bytes = new_bytes + string.len(ARGV[at + 5])
      local tenant = string.match(ARGV[at + 2], '^[^|]*|([^|]*)')
      local sums = tenants[tenant] or { pages = 0, tokens = 0 }
      sums.pages, sums.tokens = sums.pages + 1, sums.tokens + tonumber(ARGV[at + 3])
      tenants[tenant] = sums
    end
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

-- Token buckets that fill with time. A call may overdraw one that holds anything: then the tenant
-- waits until the debt is paid, and no size of call is refused for ever.
if rates.pages > 0 or rates.tokens > 0 then
  local levels, wait_ms = {}, 0
  for tenant, sums in pairs(tenants) do
    local bucket = redis.call('HMGET', P .. ':bucket:' .. tenant, 'pages', 'tokens', 'at')
    local passed_s = bucket[3] and math.max(0, now - tonumber(bucket[3])) / 1000 or burst_s
    levels[tenant] = {}
    for place, what in ipairs({ 'pages', 'tokens' }) do
      local full = rates[what] * burst_s
      local level = math.min(full, tonumber(bucket[place] or full) + passed_s * rates[what])
      levels[tenant][what] = level - sums[what]
      if rates[what] > 0 and level < 1 then
        wait_ms = math.max(wait_ms, math.ceil((1 - level) / rates[what] * 1000))
      end
    end
  end
  if wait_ms > 0 then
    return { 'limited', tostring(wait_ms) }
  end
  for tenant, level in pairs(levels) do
    local key = P .. ':bucket:' .. tenant
    redis.call('HSET', key, 'pages', level.pages, 'tokens', level.tokens, 'at', now)
    redis.call('PEXPIRE', key, 86400000)
  end
end

if batch ~= '' then
  redis.call('HSETNX', P .. ':batch:' .. batch, 'created', now)
  redis.call('ZADD', P .. ':batches', now, batch)
end

local answer, queues, latest, total = {}, {}, {}, 0
for at = FIRST, #ARGV, FIELDS do
  local id, client, queue = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local state, created = states[id], 0
  if not state then
    created, state = 1, 'queued'
    states[id] = state
    local body = P .. ':body:' .. ARGV[at + 4]
    if redis.call('HINCRBY', body, 'refs', 1) == 1 then
      redis.call('HSET', body, 'data', ARGV[at + 5])
      count('body_bytes', string.len(ARGV[at + 5]))
    end
    add(schema_needs, ARGV[at + 9], 1)
    redis.call('HSET', page_key(id), 'state', state, 'queue', queue, 'cost', ARGV[at + 3],
      'body', ARGV[at + 4], 'schema', ARGV[at + 9], 'meta', ARGV[at + 6], 'url', ARGV[at + 7],
      'submitted', now, 'at', now)
    queues[queue] = queues[queue] or {}
    table.insert(queues[queue], id)
    if ARGV[at + 8] ~= '' then
      latest[#latest + 1] = ARGV[at + 8]
      latest[#latest + 1] = id
    end
    count('queued', 1)
    count('submitted', 1)
  else
    count('resubmitted', 1)
  end
  if batch == '' and (state == 'queued' or state == 'leased') then
    redis.call('HSET', page_key(id), 'direct', '1')
  end
  if batch ~= '' then
    if redis.call('SADD', P .. ':batch:' .. batch .. ':ids', id .. client) == 1 then
      total = total + 1
      if state ~= 'done' and state ~= 'failed' then
        redis.call('RPUSH', P .. ':waiters:' .. id, batch .. '\0' .. client)
      end
      if state ~= 'queued' and state ~= 'leased' then
        batch_finished(batch, id, client, state)
      end
    end
  end
  answer[#answer + 1] = { state, created }
end
for queue, ids in pairs(queues) do
  enqueue(queue, false, ids, false)
end
if #latest > 0 then
  redis.call('HSET', P .. ':latest', unpack(latest))
end
if total > 0 then
  redis.call('HINCRBY', P .. ':batch:' .. batch, 'total', total)
end
write_sums(now)
return answer
