-- Seal the periods of a definition before a given one: their later reports count in that one.
-- KEYS: the summaries, numbers of commits decided and done.
-- ARGV: the definition, the first period that is not sealed, the field with the number of the metric's last commit in pieces.
-- Returns 1, or 0 while a commit of the metric is added in pieces: all of its pieces must count in the same periods.
local told = redis.call('HMGET', KEYS[2], ARGV[3], 'done')
if tonumber(told[1] or 0) > tonumber(told[2] or 0) then
  return 0
end
if (redis.call('HGET', KEYS[1], ARGV[1] .. '|open') or '') < ARGV[2] then
  redis.call('HSET', KEYS[1], ARGV[1] .. '|open', ARGV[2])
end
return 1
