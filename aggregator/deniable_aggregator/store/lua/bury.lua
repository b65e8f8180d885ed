-- Move an entry that cannot be counted to the dead letters, if the consumer still owns it.
-- KEYS: stream, dead letters.  ARGV: group, consumer, id, reason, cap of the dead letters.
if #redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1, ARGV[2]) == 0 then
  return 0
end
local entry = redis.call('XRANGE', KEYS[1], ARGV[3], ARGV[3])
if #entry > 0 then
  -- Under the hour, as in the stream. If the clock was set back, a star continues after the last id, which also has an hour.
  local fields = {'reason', ARGV[4], 'id', ARGV[3], unpack(entry[1][2])}
  local id = string.format('%.0f-*', math.floor(redis.call('TIME')[1] / 3600) * 3600000)
  local put = redis.pcall('XADD', KEYS[2], 'MAXLEN', '~', ARGV[5], id, unpack(fields))
  if type(put) == 'table' then
    redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[5], '*', unpack(fields))
  end
end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
redis.call('XDEL', KEYS[1], ARGV[3])
return 1
