-- ARGV: page ids. Puts dead pages back into the queue, each to run alone as after any loss, with
-- its attempts before it again. Returns the ids for which this was done: others aren't dead, or
-- their body is gone.

local now, retried = now_ms(), {}
for _, id in ipairs(ARGV) do
  local key = page_key(id)
  local page = redis.call('HMGET', key, 'state', 'queue', 'body')
  if page[1] == 'dead' and redis.call('EXISTS', P .. ':body:' .. page[3]) == 1 then
    redis.call('ZREM', P .. ':dead', id)
    redis.call('ZREM', P .. ':terminal', id)
    redis.call('HDEL', key, 'finished', 'blamed', 'losses')
    each_waiter(id, function(batch, client)
      reopen(batch, id, client, now)
    end)
    redis.call('HSET', key, 'state', 'queued', 'at', now)
    enqueue(page[2], true, { id }, false)
    count('dead', -1)
    count('queued', 1)
    retried[#retried + 1] = id
  end
end
write_sums(now)
return retried
