-- Decide that entries with staged sums are counted: check that the consumer still owns every one and that all pieces are there,
-- then record that they are to be added, acknowledge and delete.
-- KEYS: stream, numbers of commits decided and done, the staged pieces.
-- ARGV: group, consumer, token of the pieces, their number of elements, number of ids, ids..., digests of the metrics.
-- Returns 1. Nothing is written if it returns the ids that the consumer does not own, or 0 because pieces are missing.
if redis.call('TTL', KEYS[3]) == -1 then -- decided already: the answer was lost, and this is sent again
  return 1
end
local count = tonumber(ARGV[5])
local others = stale(ARGV[1], ARGV[2], 6, count)
if #others > 0 then
  return others
end
if redis.call('LLEN', KEYS[3]) ~= tonumber(ARGV[4]) then
  return 0
end
redis.call('PERSIST', KEYS[3])
local number = redis.call('HINCRBY', KEYS[2], 'decided', 1)
redis.call('HSET', KEYS[2], number, ARGV[3])
for i = 6 + count, #ARGV do
  redis.call('HSET', KEYS[2], ARGV[i], number)
end
remove(ARGV[1], 6, count)
return 1
