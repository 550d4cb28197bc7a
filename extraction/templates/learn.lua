-- Counts a page's lines for its site.
-- KEYS[1]: the site's hash. Its fields: `pages`; `u` .. digest of each address counted; `l` ..
-- digest of each line: on how many pages it stood, or `h` if it has held a value.
-- ARGV: digest of the address, seconds to live, most pages, most lines, number of lines, digests of
-- the lines, digests of those that held a value.
local key = KEYS[1]
local most_pages, most_lines = tonumber(ARGV[3]), tonumber(ARGV[4])
local pages = tonumber(redis.call('HGET', key, 'pages') or '0')
local last = 5 + tonumber(ARGV[5])
local counts = pages < most_pages and redis.call('HSETNX', key, 'u' .. ARGV[1], 1) == 1
if counts then
  pages = redis.call('HINCRBY', key, 'pages', 1)
  if pages == 1 then redis.call('EXPIRE', key, ARGV[2]) end
  for i = 6, last do
    local field = 'l' .. ARGV[i]
    if redis.call('HGET', key, field) ~= 'h' then redis.call('HINCRBY', key, field, 1) end
  end
end
for i = last + 1, #ARGV do
  local field = 'l' .. ARGV[i]
  if counts or redis.call('HEXISTS', key, field) == 1 then redis.call('HSET', key, field, 'h') end
end
-- Of too many lines the rarest are forgotten; what comes back is counted anew, and so too low.
local low = 1
while redis.call('HLEN', key) > most_lines + most_pages + 1 and low <= pages do
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local count = tonumber(all[i + 1])
    if string.sub(all[i], 1, 1) == 'l' and count and count <= low then
      redis.call('HDEL', key, all[i])
    end
  end
  low = low * 2
end
return pages
