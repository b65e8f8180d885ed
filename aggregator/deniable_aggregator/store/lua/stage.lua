-- Write a part of what is staged, which expires from now on, whoever dies.
-- KEYS: where.  ARGV: seconds, then the command and what follows its key.
redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3))
return redis.call('EXPIRE', KEYS[1], ARGV[1])
