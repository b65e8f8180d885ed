-- Delete a consumer that has nothing pending; entries of a deleted consumer would be lost.
-- KEYS: stream.  ARGV: group, consumer.
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) > 0 then
  return 0
end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return 1
