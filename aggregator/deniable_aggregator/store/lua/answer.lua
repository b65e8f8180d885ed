-- Spend for an answer and store it, at one moment.
-- KEYS: answers of the metric, what was spent.
-- ARGV: the question, an answer that differs from any other caller's, its cost, then (account, its limit) for each account that
-- pays.
-- Returns the answer that is stored, and 1 if it is this one, even if it is sent again; nil if an account has too little left.
local kept = redis.call('HGET', KEYS[1], ARGV[1])
if kept then
  return {kept, kept == ARGV[2] and 1 or 0}
end
for i = 4, #ARGV, 2 do
  if (redis.call('HGET', KEYS[2], ARGV[i]) or 0) + ARGV[3] > tonumber(ARGV[i + 1]) then
    return false
  end
end
for i = 4, #ARGV, 2 do
  redis.call('HINCRBY', KEYS[2], ARGV[i], ARGV[3])
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {ARGV[2], 1}
