-- Record that a worker lives, and up to when everything appended is counted. All times are the store's, since machines' may
-- differ.
-- KEYS: stream, workers, the record: a time before which everything is counted ('-' if unknown), then a later time and the last
-- entry at that time.
-- ARGV: worker, seconds for which a worker counts as alive.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
redis.call('ZADD', KEYS[2], string.format('%.6f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('(%.6f', now - ARGV[2]))
redis.call('ZREMRANGEBYSCORE', KEYS[2], string.format('(%.6f', now), '+inf') -- from before the clock was set back
redis.call('EXPIRE', KEYS[2], ARGV[2])

local function note(counted, last)
  redis.call('SET', KEYS[3], string.format('%s %.3f %s', counted, now, last))
end

local function parts(id)
  local time, number = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(time), tonumber(number)
end

local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
if not first then
  redis.call('SET', KEYS[3], string.format('%.3f', now))
  return
end
local counted, at, id = string.match(redis.call('GET', KEYS[3]) or '-', '^(%S+) ?(%S*) ?(%S*)$')
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1][1]
local latest = math.max(tonumber(at) or 0, tonumber(counted) or 0)
if latest > now + 1 then -- the clock was set back by more than it may be off
  note('-', last)
elseif id == '' then
  note(counted, last)
else
  local time, number = parts(first[1])
  local last_time, last_number = parts(id)
  if time > last_time or (time == last_time and number > last_number) then
    note(at, last)
  end
end
