-- Note other files with the same reports, unless some of the former ones are not noted any more.
-- KEYS: names of a stratum's files.  ARGV: number of the former ones, the former ones..., the others.
-- Returns 1 if they were exchanged, now or before, because an answer was lost and this is sent again; else 0.
local former = tonumber(ARGV[1])
if redis.call('SISMEMBER', KEYS[1], ARGV[2 + former]) == 1 then
  return 1
end
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
