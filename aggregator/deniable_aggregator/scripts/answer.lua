-- Spend for an answer and keep it, at the same moment.
-- KEYS: answers of the metric, what was spent on it.
-- ARGV: the question, an answer to it, whose account, what is noted there ('' for nothing), what is to be noted.
-- Returns the answer that is kept, with 1 if it is this one; nil where the account says something else by now.
local kept = redis.call('HGET', KEYS[1], ARGV[1])
if kept then
  return {kept, 0}
end
if (redis.call('HGET', KEYS[2], ARGV[3]) or '') ~= ARGV[4] then
  return false
end
redis.call('HSET', KEYS[2], ARGV[3], ARGV[5])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {ARGV[2], 1}
