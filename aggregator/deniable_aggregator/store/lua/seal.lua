-- Seal the periods of a definition before one: what comes of them from now on counts in that one.
-- KEYS: the summaries, what was decided and done of commits in pieces.
-- ARGV: the definition, the first period that is not sealed, what has the number of the metric's last commit in pieces.
-- Returns 1, or 0 while a commit of the metric is added in pieces: all of these count in the same periods.
local told = redis.call('HMGET', KEYS[2], ARGV[3], 'done')
if tonumber(told[1] or 0) > tonumber(told[2] or 0) then
  return 0
end
if (redis.call('HGET', KEYS[1], ARGV[1] .. '|open') or '') < ARGV[2] then
  redis.call('HSET', KEYS[1], ARGV[1] .. '|open', ARGV[2])
end
return 1
