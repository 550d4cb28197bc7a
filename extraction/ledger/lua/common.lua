-- Shared by all scripts of the ledger; put before each of them.
--
-- KEYS[1] is the prefix of a shard's keys, {namespace:shard}; all keys share its hash tag.
--   :page:ID       hash    state token worker stream entry body schema holds meta url class queue
--                          submitted finished losses blamed alone company reason message result
--   :body:SHA256   hash    data (compressed), refs: how many pages need it
--   :schemas       hash    schema version -> how many pages may yet need it
--   :stream:NAME   stream  waiting and leased pages of one class, schema and set of options;
--                          NAME ends in :all or, for pages that were lost before, in :alone
--   :ring:CLASS    zset    streams that may have waiting pages, by when they were last served
--   :leases        zset    page ids by deadline (ms)
--   :terminal, :dead       zset of page ids by time of finishing
--   :waiters:ID    list    "BATCH\0CLIENT" of those that wait for a page, or had it when it died
--   :batch:B       hash    total done failed dead created finished
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
local GROUP = 'ledger'

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function page_key(id)
  return P .. ':page:' .. id
end

local function count(name, by)
  redis.call('HINCRBY', P .. ':counters', name, by)
end

-- Takes a page's entry off its stream; a page claimed by name has none.
local function unqueue(stream, entry)
  if not stream or stream == '' then
    return
  end
  local key = P .. ':stream:' .. stream
  redis.call('XACK', key, GROUP, entry)
  redis.call('XDEL', key, entry)
  if redis.call('XLEN', key) == 0 then
    redis.call('DEL', key)
  end
end

-- Puts a page at the end of its stream and returns {stream, entry}.
local function enqueue(id, class, queue, alone)
  local stream = class .. ':' .. queue .. (alone and ':alone' or ':all')
  local key = P .. ':stream:' .. stream
  if redis.call('EXISTS', key) == 0 then
    redis.call('XGROUP', 'CREATE', key, GROUP, '0', 'MKSTREAM')
  end
  local entry = redis.call('XADD', key, '*', 'p', id)
  local seq = redis.call('GET', P .. ':seq') or '0'
  redis.call('ZADD', P .. ':ring:' .. class, 'NX', seq, stream)
  return { stream, entry }
end

-- Drops one page's claim on its body and its schema; the last one takes the body with it. Pages
-- that are queued, leased or dead have a claim.
local function release_inputs(id)
  local page = redis.call('HMGET', page_key(id), 'body', 'holds', 'schema')
  if page[2] ~= '1' then
    return
  end
  redis.call('HDEL', page_key(id), 'holds')
  if redis.call('HINCRBY', P .. ':schemas', page[3], -1) <= 0 then
    redis.call('HDEL', P .. ':schemas', page[3])
  end
  local key = P .. ':body:' .. page[1]
  if redis.call('EXISTS', key) == 1 and redis.call('HINCRBY', key, 'refs', -1) <= 0 then
    count('body_bytes', -redis.call('HSTRLEN', key, 'data'))
    redis.call('DEL', key)
  end
end

-- Adds a finished page to the progress of one batch.
local function batch_finished(batch, id, client, state, now)
  local key = P .. ':batch:' .. batch
  if redis.call('EXISTS', key) == 0 then
    return
  end
  redis.call('HINCRBY', key, state, 1)
  redis.call('HSET', key, 'finished', now)
  redis.call('RPUSH', key .. ':records', id .. client)
  redis.call('ZADD', P .. ':batches', now, batch)
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

-- Makes a page terminal, whose lease has been ended, and tells the batches that wait for it. Those
-- of a dead page are remembered: it may be tried again.
local function finish(id, state, now)
  count('leased', -1)
  count(state, 1)
  redis.call('HSET', page_key(id), 'state', state, 'finished', now)
  redis.call('ZADD', P .. ':terminal', now, id)
  each_waiter(id, function(batch, client)
    batch_finished(batch, id, client, state, now)
  end)
  if state ~= 'dead' then
    redis.call('DEL', P .. ':waiters:' .. id)
  end
end

-- Forgets a terminal page. A batch that lists it still has its ids, and no record.
local function drop(id)
  release_inputs(id)
  local key = page_key(id)
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
local function give_back(id, now)
  local key = page_key(id)
  local page = redis.call('HMGET', key, 'stream', 'entry', 'class', 'queue', 'alone')
  redis.call('ZREM', P .. ':leases', id)
  unqueue(page[1], page[2])
  local place = enqueue(id, page[3], page[4], page[5] == '1')
  count('leased', -1)
  count('queued', 1)
  redis.call('HSET', key, 'state', 'queued', 'stream', place[1], 'entry', place[2], 'worker', '')
end

-- Ends a lease after a loss. In company nobody knows whose fault it was, so the page is only
-- set apart; alone it is charged, and given up after max_attempts. Returns whether it is dead.
local function lose(id, reason, message, max_attempts, now)
  local key = page_key(id)
  local page = redis.call('HMGET', key, 'stream', 'entry', 'class', 'queue', 'company', 'blamed')
  redis.call('ZREM', P .. ':leases', id)
  unqueue(page[1], page[2])
  count('lost', 1)
  redis.call('HINCRBY', key, 'losses', 1)
  redis.call('HSET', key, 'alone', '1', 'reason', reason, 'message', message, 'worker', '')
  local blamed = tonumber(page[6] or '0')
  if page[5] == '1' then
    blamed = redis.call('HINCRBY', key, 'blamed', 1)
  end
  if blamed >= max_attempts then
    redis.call('HSET', key, 'stream', '', 'entry', '')
    finish(id, 'dead', now)
    redis.call('ZADD', P .. ':dead', now, id)
    return true
  end
  local place = enqueue(id, page[3], page[4], true)
  count('leased', -1)
  count('queued', 1)
  redis.call('HSET', key, 'state', 'queued', 'stream', place[1], 'entry', place[2])
  return false
end
