-- Write a part of staged data, which expires from now on, whoever dies.
-- A string grows at its end only. If its beginning was lost, nothing more is written, so its length shows whether it is complete.
-- KEYS: where.  ARGV: seconds, then the command and its arguments.
if ARGV[2] == 'SETRANGE' and redis.call('STRLEN', KEYS[1]) < tonumber(ARGV[3]) then
  return 0
end
redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3))
return redis.call('EXPIRE', KEYS[1], ARGV[1])
