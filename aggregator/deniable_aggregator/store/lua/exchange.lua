-- Note other files with the same reports, unless some of the former ones are not noted any more.
-- KEYS: names of a stratum's files.  ARGV: number of the former ones, the former ones..., the others.
-- Returns 1 if they were exchanged, else 0.
local former = tonumber(ARGV[1])
for i = 2, 1 + former do
  if redis.call('SISMEMBER', KEYS[1], ARGV[i]) == 0 then
    return 0
  end
end
for i = 2, 1 + former do
  redis.call('SREM', KEYS[1], ARGV[i])
end
for i = 2 + former, #ARGV do
  redis.call('SADD', KEYS[1], ARGV[i])
end
return 1
