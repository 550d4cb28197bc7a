-- ARGV: batch, cursor ('0' at first), count, known ('1': in another shard). Cancels a batch: it takes no more pages, and pages
-- that wait are waited for no longer; those that nobody else wants are forgotten. Leased pages
-- finish. Goes through about `count` of the batch's pages; returns the next cursor ('0': that was
-- all), and how many waits it ended. Nil for an unknown batch.

local batch, cursor, most = ARGV[1], ARGV[2], ARGV[3]
local now, key = now_ms(), P .. ':batch:' .. ARGV[1]
if ARGV[4] ~= '1' and redis.call('EXISTS', key) == 0 then
  return false
end
-- As in claim: goes through when Redis is full, for it makes room.
redis.call('ZREM', P .. ':leases', '')
redis.call('HSETNX', key, 'created', now)

-- Forgets a waiting page but for its place in a queue.
local function forget(id, page)
  local digest = string.sub(id, 1, 16)
  if redis.call('HGET', P .. ':latest', digest) == id then
    redis.call('HDEL', P .. ':latest', digest)
  end
  redis.call('DEL', page_key(id), P .. ':waiters:' .. id)
  release_inputs(page[4], page[5])
  count('queued', -1)
  count('cancelled', 1)
end

-- Takes pages out of a queue: a few one by one, many in one pass over it.
local function unqueue(name, gone, number)
  local queue = P .. ':queue:' .. name
  if number <= 4 then
    for id in pairs(gone) do
      redis.call('LREM', queue, 1, id)
    end
  else
    local kept = {}
    for _, id in ipairs(redis.call('LRANGE', queue, 0, -1)) do
      if not gone[id] then
        kept[#kept + 1] = id
      end
    end
    redis.call('DEL', queue)
    for first = 1, #kept, 1000 do
      redis.call('RPUSH', queue, unpack(kept, first, math.min(first + 999, #kept)))
    end
  end
  note_head(name)
end

local found = redis.call('SSCAN', key .. ':ids', cursor, 'COUNT', most)
local ended, queues, numbers = 0, {}, {}
for _, pair in ipairs(found[2]) do
  local id, client = string.sub(pair, 1, 64), string.sub(pair, 65)
  local page = redis.call('HMGET', page_key(id), 'state', 'queue', 'alone', 'body', 'schema',
    'direct')
  local waiters = P .. ':waiters:' .. id
  if page[1] == 'queued' and redis.call('LREM', waiters, 1, batch .. '\0' .. client) == 1 then
    ended = ended + 1
    if page[6] ~= '1' and redis.call('EXISTS', waiters) == 0 then
      local name = page[3] == '1' and page[2] .. '!' or page[2]
      queues[name], numbers[name] = queues[name] or {}, (numbers[name] or 0) + 1
      queues[name][id] = true
      forget(id, page)
    end
  end
end
for name, gone in pairs(queues) do
  unqueue(name, gone, numbers[name])
end
if ended > 0 then
  redis.call('HINCRBY', key, 'cancelled', ended)
  redis.call('HSET', key, 'finished', now)
end
redis.call('HSET', key, 'closed', now)
redis.call('ZADD', P .. ':batches', now, batch)
write_sums(now)
return { found[1], ended }
