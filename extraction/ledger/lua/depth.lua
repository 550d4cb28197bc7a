-- Returns {counters as a flat list, now, milliseconds of the oldest entry or 0}.

local oldest = 0
for _, class in ipairs({ 'interactive', 'bulk' }) do
  for _, stream in ipairs(redis.call('ZRANGE', P .. ':ring:' .. class, 0, -1)) do
    local head = redis.call('XRANGE', P .. ':stream:' .. stream, '-', '+', 'COUNT', 1)[1]
    if head then
      local at = tonumber(string.match(head[1], '^%d+'))
      if oldest == 0 or at < oldest then
        oldest = at
      end
    end
  end
end
return { redis.call('HGETALL', P .. ':counters'), tostring(now_ms()), tostring(oldest) }
