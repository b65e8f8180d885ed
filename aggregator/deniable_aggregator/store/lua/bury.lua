-- Move an entry that cannot be counted to the dead letters, if the consumer still owns it.
-- KEYS: stream, dead letters.  ARGV: group, consumer, id, reason, cap of the dead letters.
if #redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1, ARGV[2]) == 0 then
  return 0
end
local entry = redis.call('XRANGE', KEYS[1], ARGV[3], ARGV[3])
if #entry > 0 then
  local fields = {'reason', ARGV[4], 'id', ARGV[3], unpack(entry[1][2])}
  enter(KEYS[2], tonumber(redis.call('TIME')[1]), fields, 'MAXLEN', '~', ARGV[5])
end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
redis.call('XDEL', KEYS[1], ARGV[3])
return 1
