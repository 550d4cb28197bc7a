-- Shared by all scripts of the ledger; put before each of them.
--
-- KEYS[1] is the prefix of a shard's keys, {namespace:shard}; all keys share its hash tag.
--   :page:ID       hash    state token worker queue cost at body schema meta url submitted finished
--                          losses blamed alone company capped reason message result
--                          direct: it was submitted outside of batches
--   :body:SHA256   hash    data (compressed), refs: how many pages need it
--   :schemas       hash    schema version -> how many pages may yet need it
--   :queue:NAME    list    waiting pages; NAME is CLASS|TENANT|WORK|SITE, WORK standing for schema
--                          and options. Pages that were lost before wait under SITE!, each to run
--                          alone.
--   :tenants:CLASS, :sites:CLASS|TENANT|WORK
--                  zset    rings of who may have waiting pages, by the tokens that were served:
--                          who got least is next. An empty queue stays until its turn comes, so
--                          that nobody gets rid of what he was charged by leaving for a moment.
--   :works:CLASS|TENANT
--                  zset    the same of sets of schema and options, which take turns
--   :heads:CLASS   zset    queues by when their first page was queued (ms)
--   :inflight      hash    TENANT|SITE -> leased pages, where there is a cap
--   :parked:TENANT|SITE    set of queues that are out of their ring while the site is at its cap
--   :bucket:TENANT hash    pages, tokens left; at: when that was (ms)
--   :leases        zset    page ids by deadline (ms)
--   :terminal, :dead       zset of page ids by time of finishing
--   :waiters:ID    list    "BATCH\0CLIENT" of those that wait for a page, or had it when it died
--   :batch:B       hash    total done failed dead cancelled created finished; closed: it was
--                          cancelled and takes no more pages
--   :batch:B:ids   set     page id and client id, joined, of the pages that count
--   :batch:B:records list  the same of those that have finished; empty where a dead page that
--                          was listed there is tried again
--   :batches       zset    batch ids by last change
--   :latest        hash    digest of a URL -> page accepted last
--   :counters      hash    of QueueDepth
--   :seq, :claims  string  counters: of tokens and turns; of claims, for the classes' shares
--
-- Freeing commands come before growing ones in every script that ends a lease: Redis refuses a
-- script over maxmemory only at its first growing command, and these must always go through.

local P = KEYS[1]

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function page_key(id)
  return P .. ':page:' .. id
end

-- Counters, needs of schemas and finished pages of batches are added up here, and written once at
-- a script's end by write_sums().
local counts, schema_needs, finished_in = {}, {}, {}

local function add(sums, name, by)
  sums[name] = (sums[name] or 0) + by
end

local function count(name, by)
  add(counts, name, by)
end

-- Adds a finished page to the progress of one batch.
local function batch_finished(batch, id, client, state)
  local sums = finished_in[batch]
  if not sums then
    sums = { lines = {}, states = {} }
    finished_in[batch] = sums
  end
  sums.lines[#sums.lines + 1] = id .. client
  add(sums.states, state, 1)
end

local function write_batch(batch, sums, now)
  local key = P .. ':batch:' .. batch
  if redis.call('EXISTS', key) == 0 then
    return
  end
  for state, by in pairs(sums.states) do
    redis.call('HINCRBY', key, state, by)
  end
  redis.call('HSET', key, 'finished', now)
  for first = 1, #sums.lines, 1000 do
    local last = math.min(first + 999, #sums.lines)
    redis.call('RPUSH', key .. ':records', unpack(sums.lines, first, last))
  end
  redis.call('ZADD', P .. ':batches', now, batch)
end

local function write_sums(now)
  for name, by in pairs(counts) do
    if by ~= 0 then
      redis.call('HINCRBY', P .. ':counters', name, by)
    end
  end
  for schema, by in pairs(schema_needs) do
    if redis.call('HINCRBY', P .. ':schemas', schema, by) <= 0 then
      redis.call('HDEL', P .. ':schemas', schema)
    end
  end
  for batch, sums in pairs(finished_in) do
    write_batch(batch, sums, now)
  end
  counts, schema_needs, finished_in = {}, {}, {}
end

-- Puts a member into a ring, unless it is there: level with who got least.
local function enter(ring, member)
  local first = redis.call('ZRANGE', ring, 0, 0, 'WITHSCORES')
  redis.call('ZADD', ring, 'NX', first[2] or '0', member)
end

local function enter_rings(name)
  local class, tenant, work, site = string.match(name, '^([^|]*)|([^|]*)|([^|]*)|(.*)$')
  enter(P .. ':tenants:' .. class, tenant)
  enter(P .. ':works:' .. class .. '|' .. tenant, work)
  enter(P .. ':sites:' .. class .. '|' .. tenant .. '|' .. work, site)
end

-- Notes since when a queue's first page waits.
local function note_head(name)
  local heads = P .. ':heads:' .. string.match(name, '^[^|]*')
  local id = redis.call('LINDEX', P .. ':queue:' .. name, 0)
  if id then
    redis.call('ZADD', heads, redis.call('HGET', page_key(id), 'at') or '0', name)
  else
    redis.call('ZREM', heads, name)
  end
end

-- Puts pages at the end of a queue (`front`: before the others, as what came back unused).
local function enqueue(queue, alone, ids, front)
  local name = alone and queue .. '!' or queue
  local length = redis.call(front and 'LPUSH' or 'RPUSH', P .. ':queue:' .. name, unpack(ids))
  if front or length == #ids then
    note_head(name)
    enter_rings(name)
  end
end

-- Gives back a page's place under its site's cap, and lets the site's queues into their rings.
local function uncap(queue)
  local flow = string.gsub(queue, '^[^|]*|([^|]*)|[^|]*|(.*)$', '%1|%2')
  if redis.call('HINCRBY', P .. ':inflight', flow, -1) <= 0 then
    redis.call('HDEL', P .. ':inflight', flow)
  end
  local parked = P .. ':parked:' .. flow
  for _, name in ipairs(redis.call('SMEMBERS', parked)) do
    enter_rings(name)
  end
  redis.call('DEL', parked)
end

-- Drops one page's claim on its body and its schema; the last one takes the body with it. Pages
-- that are queued, leased or dead have a claim.
local function release_inputs(content, schema)
  add(schema_needs, schema, -1)
  local key = P .. ':body:' .. content
  if redis.call('EXISTS', key) == 1 and redis.call('HINCRBY', key, 'refs', -1) <= 0 then
    count('body_bytes', -redis.call('HSTRLEN', key, 'data'))
    redis.call('DEL', key)
  end
end

-- Takes a dead page off one batch's progress. Its place in the list stays, empty, so that cursors
-- stay where they are; the page will stand at the end.
local function reopen(batch, id, client, now)
  local key = P .. ':batch:' .. batch
  local place = redis.call('LPOS', key .. ':records', id .. client)
  if not place then
    return
  end
  redis.call('LSET', key .. ':records', place, '')
  redis.call('HINCRBY', key, 'dead', -1)
  redis.call('ZADD', P .. ':batches', now, batch)
end

-- Calls visit(batch, client) for each that waits for a page.
local function each_waiter(id, visit)
  for _, waiter in ipairs(redis.call('LRANGE', P .. ':waiters:' .. id, 0, -1)) do
    local zero = string.find(waiter, '\0', 1, true)
    visit(string.sub(waiter, 1, zero - 1), string.sub(waiter, zero + 1))
  end
end

-- Tells the batches that wait for a page of its end. Those of a dead page are remembered: it may
-- be tried again.
local function finish(id, state)
  count('leased', -1)
  count(state, 1)
  local waited = false
  each_waiter(id, function(batch, client)
    waited = true
    batch_finished(batch, id, client, state)
  end)
  if waited and state ~= 'dead' then
    redis.call('DEL', P .. ':waiters:' .. id)
  end
end

-- Forgets a terminal page. A batch that lists it still has its ids, and no record.
local function drop(id)
  local key = page_key(id)
  local page = redis.call('HMGET', key, 'state', 'body', 'schema')
  if page[1] == 'dead' then
    release_inputs(page[2], page[3])
  end
  count('result_bytes', -redis.call('HSTRLEN', key, 'result'))
  local digest = string.sub(id, 1, 16)
  if redis.call('HGET', P .. ':latest', digest) == id then
    redis.call('HDEL', P .. ':latest', digest)
  end
  redis.call('ZREM', P .. ':terminal', id)
  redis.call('ZREM', P .. ':dead', id)
  redis.call('DEL', key, P .. ':waiters:' .. id)
end

-- Ends a lease without a result and without blame.
local function give_back(id)
  local key = page_key(id)
  redis.call('ZREM', P .. ':leases', id)
  local page = redis.call('HMGET', key, 'queue', 'alone', 'capped')
  redis.call('HSET', key, 'state', 'queued', 'worker', '')
  enqueue(page[1], page[2] == '1', { id }, true)
  if page[3] == '1' then
    uncap(page[1])
  end
  count('leased', -1)
  count('queued', 1)
end

-- Ends a lease after a loss. In company nobody knows whose fault it was, so the page is only
-- set apart; alone it is charged, and given up after max_attempts. Returns whether it is dead.
local function lose(id, reason, message, max_attempts, now)
  local key = page_key(id)
  redis.call('ZREM', P .. ':leases', id)
  local page = redis.call('HMGET', key, 'queue', 'company', 'blamed', 'capped')
  count('lost', 1)
  redis.call('HINCRBY', key, 'losses', 1)
  redis.call('HSET', key, 'alone', '1', 'reason', reason, 'message', message, 'worker', '')
  if page[4] == '1' then
    uncap(page[1])
  end
  local blamed = tonumber(page[3] or '0')
  if page[2] == '1' then
    blamed = redis.call('HINCRBY', key, 'blamed', 1)
  end
  if blamed >= max_attempts then
    redis.call('HSET', key, 'state', 'dead', 'finished', now)
    redis.call('ZADD', P .. ':terminal', now, id)
    redis.call('ZADD', P .. ':dead', now, id)
    finish(id, 'dead')
    return true
  end
  redis.call('HSET', key, 'state', 'queued', 'at', now)
  enqueue(page[1], true, { id }, false)
  count('leased', -1)
  count('queued', 1)
  return false
end
