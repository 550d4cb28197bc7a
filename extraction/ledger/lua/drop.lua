-- ARGV: page ids. Forgets dead pages, in the batches that list them too; returns the ids for which
-- this was done.

local now, dropped = now_ms(), {}
for _, id in ipairs(ARGV) do
  if redis.call('HGET', page_key(id), 'state') == 'dead' then
    each_waiter(id, function(batch, client)
      local key = P .. ':batch:' .. batch
      if redis.call('SREM', key .. ':ids', id .. client) == 1 then
        reopen(batch, id, client, now)
        redis.call('HINCRBY', key, 'total', -1)
      end
    end)
    drop(id)
    dropped[#dropped + 1] = id
  end
end
write_sums(now)
return dropped
