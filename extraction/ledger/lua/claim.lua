-- ARGV: worker, count, lease_ms, max_bytes, want, max_site, run, ageing_ms. Returns {now, pages},
-- a page being {id, token, losses, alone, submitted, url, meta, body}.
--
-- A burst is of one tenant, schema and set of options. Within these, sites are served in runs of
-- at most `run` pages, the site first that has got the fewest tokens so far.

local worker, wanted_count, lease_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local max_bytes, want, max_site = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local run, ageing_ms = tonumber(ARGV[7]), tonumber(ARGV[8])
local now = now_ms()
local pages, capped, bytes, spent = {}, {}, 0, 0

-- Frees nothing, but lets claims through when Redis is full: only work makes room.
redis.call('ZREM', P .. ':leases', '')

-- Takes a page into the burst; returns its tokens.
local function lease(id)
  local page = redis.call('HMGET', page_key(id), 'state', 'losses', 'alone', 'submitted', 'url',
    'meta', 'body', 'cost')
  if page[1] ~= 'queued' then
    return 0
  end
  local body = redis.call('HGET', P .. ':body:' .. page[7], 'data')
  bytes = bytes + (body and string.len(body) or 0)
  pages[#pages + 1] = { id, '', page[2] or '0', page[3] or '0', page[4], page[5], page[6], body }
  local cost = tonumber(page[8] or '1')
  spent = spent + cost
  return cost
end

-- Leases the first pages of a queue; returns their tokens, nil where none waits.
local function take(name, limit)
  local key = P .. ':queue:' .. name
  local taken, cost = 0, 0
  for _, id in ipairs(redis.call('LRANGE', key, 0, limit - 1)) do
    if taken > 0 and bytes >= max_bytes then
      break
    end
    taken = taken + 1
    cost = cost + lease(id)
  end
  if taken == 0 then
    return nil
  end
  redis.call('LPOP', key, taken)
  note_head(name)
  return cost
end

-- How many pages of a site may be leased beside those that are, and the site's flow.
local function room_of(tenant, site)
  local flow = tenant .. '|' .. site
  if max_site == 0 then
    return wanted_count, flow
  end
  return max_site - tonumber(redis.call('HGET', P .. ':inflight', flow) or '0'), flow
end

local function serve_sites(class, tenant, work)
  local base = class .. '|' .. tenant .. '|' .. work
  local ring = P .. ':sites:' .. base
  while #pages < wanted_count and bytes < max_bytes do
    local site = redis.call('ZRANGE', ring, 0, 0)[1]
    if not site then
      return
    end
    local name, before = base .. '|' .. site, #pages
    if string.sub(site, -1) == '!' then
      if before > 0 then
        return
      end
      local cost = take(name, 1)
      if cost then
        redis.call('ZINCRBY', ring, cost, site)
      else
        redis.call('ZREM', ring, site)
      end
      if #pages > 0 then
        return
      end
    else
      local room, flow = room_of(tenant, site)
      local cost = room > 0 and take(name, math.min(run, room, wanted_count - before))
      if cost then
        redis.call('ZINCRBY', ring, cost, site)
      else
        redis.call('ZREM', ring, site)
        if room <= 0 then
          redis.call('SADD', P .. ':parked:' .. flow, name)
        end
      end
      if max_site > 0 and #pages > before then
        redis.call('HINCRBY', P .. ':inflight', flow, #pages - before)
        for at = before + 1, #pages do
          capped[at] = '1'
        end
      end
    end
  end
end

local function serve_class(class)
  local tenants = P .. ':tenants:' .. class
  while true do
    local tenant = redis.call('ZRANGE', tenants, 0, 0)[1]
    if not tenant then
      return
    end
    local works = P .. ':works:' .. class .. '|' .. tenant
    local work = redis.call('ZRANGE', works, 0, 0)[1]
    if not work then
      redis.call('ZREM', tenants, tenant)
    else
      serve_sites(class, tenant, work)
      if #pages > 0 then
        -- A turn that is over comes after all that wait, and after those that come meanwhile.
        redis.call('ZADD', works, redis.call('INCR', P .. ':seq'), work)
        redis.call('ZINCRBY', tenants, spent, tenant)
        return
      end
      redis.call('ZREM', works, work)
    end
  end
end

-- A wanted page goes first, whatever its site has got; others of its kind fill the burst.
local function serve_wanted()
  local page = redis.call('HMGET', page_key(want), 'state', 'queue', 'alone')
  if page[1] ~= 'queued' then
    return
  end
  local name = page[3] == '1' and page[2] .. '!' or page[2]
  -- From the tail: who waits for a page has just submitted it.
  redis.call('LREM', P .. ':queue:' .. name, -1, want)
  note_head(name)
  local class, tenant, work, site = string.match(name, '^([^|]*)|([^|]*)|([^|]*)|(.*)$')
  local cost = lease(want)
  redis.call('ZADD', P .. ':sites:' .. class .. '|' .. tenant .. '|' .. work, 'XX', 'INCR', cost,
    site)
  if page[3] ~= '1' then
    serve_sites(class, tenant, work)
  end
  redis.call('ZADD', P .. ':tenants:' .. class, 'XX', 'INCR', spent, tenant)
end

-- Bulk has its reserved share: every fourth claim looks there first; every second once its oldest
-- page has waited for long.
local function bulk_first()
  local claim = redis.call('INCR', P .. ':claims')
  local head = redis.call('ZRANGE', P .. ':heads:bulk', 0, 0, 'WITHSCORES')
  local aged = head[2] and now - tonumber(head[2]) > ageing_ms
  return claim % (aged and 2 or 4) == 0
end

if want ~= '' then
  serve_wanted()
else
  local first = bulk_first()
  serve_class(first and 'bulk' or 'interactive')
  if #pages == 0 then
    serve_class(first and 'interactive' or 'bulk')
  end
end

if #pages > 0 then
  local deadlines = {}
  local token = redis.call('INCRBY', P .. ':seq', #pages) - #pages
  for at, page in ipairs(pages) do
    page[2] = token + at
    deadlines[#deadlines + 1] = now + lease_ms
    deadlines[#deadlines + 1] = page[1]
    redis.call('HSET', page_key(page[1]), 'state', 'leased', 'token', page[2], 'worker', worker,
      'company', #pages, 'capped', capped[at] or '')
  end
  redis.call('ZADD', P .. ':leases', unpack(deadlines))
  count('queued', -#pages)
  count('leased', #pages)
end
write_sums(now)
return { tostring(now), pages }
