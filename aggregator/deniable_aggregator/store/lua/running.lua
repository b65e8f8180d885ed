-- Return what living processes have said of the registry that they have loaded.
-- KEYS: the processes.  ARGV: seconds for which it is believed.
local now = tonumber(redis.call('TIME')[1])
return redis.call('ZRANGEBYSCORE', KEYS[1], now - believed(tonumber(ARGV[1])), now + 1)
