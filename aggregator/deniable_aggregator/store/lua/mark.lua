-- Set a field of a table.
-- KEYS: table.  ARGV: field, value.
return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
