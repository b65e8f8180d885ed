-- Say which registry a process has loaded, and forget processes that said nothing for long.
-- KEYS: the processes.  ARGV: what is said, seconds for which it is believed.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - ARGV[2]))
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now + 1), '+inf') -- from before the clock was set back
redis.call('EXPIRE', KEYS[1], ARGV[2])
