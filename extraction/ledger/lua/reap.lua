-- ARGV: max_attempts, retention_ms, max_kept_bytes, limit.
-- Returns {requeued, dead, pages dropped, batches dropped}.

local max_attempts, retention_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
local max_kept_bytes, limit = tonumber(ARGV[3]), tonumber(ARGV[4])
local now = now_ms()
local requeued, dead, dropped, batches_dropped = 0, 0, 0, 0

for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. ':leases', '-inf', now, 'LIMIT', 0, limit)) do
  local page = redis.call('HMGET', page_key(id), 'state', 'worker')
  if page[1] == 'leased' then
    local message = 'the lease of worker ' .. (page[2] or '?') .. ' ran out'
    if lose(id, 'lease_expired', message, max_attempts, now) then
      dead = dead + 1
    else
      requeued = requeued + 1
    end
  else
    redis.call('ZREM', P .. ':leases', id)
  end
end

for _, old in ipairs(redis.call('ZRANGEBYSCORE', P .. ':terminal', '-inf', now - retention_ms,
  'LIMIT', 0, limit)) do
  drop(old)
  dropped = dropped + 1
end
local kept = tonumber(redis.call('HGET', P .. ':counters', 'result_bytes') or '0')
while dropped < limit and kept + (counts.result_bytes or 0) > max_kept_bytes do
  local oldest = redis.call('ZRANGE', P .. ':terminal', 0, 0)[1]
  if not oldest then
    break
  end
  drop(oldest)
  dropped = dropped + 1
end

for _, batch in ipairs(redis.call('ZRANGEBYSCORE', P .. ':batches', '-inf', now - retention_ms,
  'LIMIT', 0, limit)) do
  local key = P .. ':batch:' .. batch
  local sums = redis.call('HMGET', key, 'total', 'done', 'failed', 'dead', 'cancelled')
  local finished = 0
  for at = 2, 5 do
    finished = finished + tonumber(sums[at] or '0')
  end
  if tonumber(sums[1] or '0') <= finished then
    redis.call('DEL', key, key .. ':ids', key .. ':records')
    redis.call('ZREM', P .. ':batches', batch)
    batches_dropped = batches_dropped + 1
  end
end
write_sums(now)
return { requeued, dead, dropped, batches_dropped }
