-- ARGV: worker, count, lease_ms, max_bytes, want. Returns {now, pages}, a page being
-- {id, token, losses, alone, submitted, url, meta, body}.

local worker, wanted_count, lease_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local max_bytes, want = tonumber(ARGV[4]), ARGV[5]
local now = now_ms()
local pages, bytes = {}, 0

-- Frees nothing, but lets claims through when Redis is full: only work makes room.
redis.call('ZREM', P .. ':leases', '')

local function lease(id)
  local key = page_key(id)
  local page = redis.call('HMGET', key, 'losses', 'alone', 'submitted', 'url', 'meta', 'body')
  local token = redis.call('INCR', P .. ':seq')
  local body = redis.call('HGET', P .. ':body:' .. page[6], 'data')
  redis.call('ZADD', P .. ':leases', now + lease_ms, id)
  redis.call('HSET', key, 'state', 'leased', 'token', token, 'worker', worker)
  count('queued', -1)
  count('leased', 1)
  bytes = bytes + (body and string.len(body) or 0)
  pages[#pages + 1] = { id, token, page[1] or '0', page[2] or '0', page[3], page[4], page[5], body }
end

-- Leases waiting pages of a stream, one by one, since a page that was read can't be unread.
local function serve(stream, limit)
  local key = P .. ':stream:' .. stream
  while #pages < limit and bytes < max_bytes do
    local read = redis.call('EXISTS', key) == 1
      and redis.call('XREADGROUP', 'GROUP', GROUP, GROUP, 'COUNT', 1, 'STREAMS', key, '>')
    if not read then
      return false
    end
    local entry, id = read[1][2][1][1], read[1][2][1][2][2]
    local page = redis.call('HMGET', page_key(id), 'state', 'entry', 'stream')
    if page[1] == 'queued' and page[2] == entry and page[3] == stream then
      lease(id)
    else
      unqueue(stream, entry)
    end
  end
  return true
end

local function serve_class(class)
  local ring = P .. ':ring:' .. class
  for _, stream in ipairs(redis.call('ZRANGE', ring, 0, -1)) do
    local alone = string.sub(stream, -6) == ':alone'
    if serve(stream, alone and 1 or wanted_count) then
      redis.call('ZADD', ring, redis.call('INCR', P .. ':seq'), stream)
    else
      redis.call('ZREM', ring, stream)
    end
    if #pages > 0 then
      return
    end
  end
end

if want ~= '' then
  local page = redis.call('HMGET', page_key(want), 'state', 'stream', 'entry', 'alone')
  if page[1] == 'queued' then
    unqueue(page[2], page[3])
    redis.call('HSET', page_key(want), 'stream', '', 'entry', '')
    lease(want)
    if page[4] ~= '1' then
      serve(page[2], wanted_count)
    end
  end
else
  -- Every fourth claim looks at the bulk class first: its reserved share.
  local bulk_first = redis.call('INCR', P .. ':claims') % 4 == 0
  serve_class(bulk_first and 'bulk' or 'interactive')
  if #pages == 0 then
    serve_class(bulk_first and 'interactive' or 'bulk')
  end
end

for _, page in ipairs(pages) do
  redis.call('HSET', page_key(page[1]), 'company', #pages)
end
return { tostring(now), pages }
