-- Return what living processes have said of the registry that they have loaded.
-- KEYS: the processes.  ARGV: seconds for which it is believed.
local now = tonumber(redis.call('TIME')[1])
local life = tonumber(ARGV[1])
-- What was said before the store started may come from a copy, whose processes are dead. Its clock is read to the second.
local state = redis.pcall('INFO', 'server')
local uptime = type(state) == 'string' and tonumber(string.match(state, 'uptime_in_seconds:(%d+)'))
if uptime then
  life = math.min(life, uptime + 2)
end
return redis.call('ZRANGEBYSCORE', KEYS[1], now - life, now + 1)
