-- Replace a field of a hash, unless it has changed since it was read.
-- KEYS: hash.  ARGV: field, its expected value, its new value ('' to delete it).  Returns 1 if it was replaced.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return 0
end
redis.call('HDEL', KEYS[1], ARGV[1]) -- first, since a store that is full lets a script write only once it has deleted
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
return 1
