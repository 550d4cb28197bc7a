-- Returns {counters as a flat list, now, since when (ms) the first waiting page waits or 0}.

local oldest = 0
for _, class in ipairs({ 'interactive', 'bulk' }) do
  local head = redis.call('ZRANGE', P .. ':heads:' .. class, 0, 0, 'WITHSCORES')
  local at = tonumber(head[2] or '0')
  if at > 0 and (oldest == 0 or at < oldest) then
    oldest = at
  end
end
return { redis.call('HGETALL', P .. ':counters'), tostring(now_ms()), tostring(oldest) }
