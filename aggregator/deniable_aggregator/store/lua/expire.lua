-- Delete everything about a period, all or nothing, unless its release has changed since it was read.
-- KEYS: index of the metric's releases; hash from each definition to its last deleted period; the summaries; as many indexes as
-- ARGV[6] says; and the other keys to delete.
-- ARGV: the period's field in the index of releases, its expected record ('' for none), the definition, the period's name, number
-- of published reports that are deleted, number of indexes, then the fields to delete from each of these.
-- Returns how many keys there were.
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then
  return 0
end
-- Deletions come first: in a full store a script may write only after it has deleted.
for k = 4, 3 + ARGV[6] do
  for i = 7, #ARGV do
    redis.call('HDEL', KEYS[k], ARGV[i])
  end
end
local deleted = 0
for k = 4 + ARGV[6], #KEYS do
  deleted = deleted + redis.call('DEL', KEYS[k])
end
local last = redis.call('HGET', KEYS[2], ARGV[3])
if not last or last < ARGV[4] then
  redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
end
if ARGV[5] ~= '0' and redis.call('HINCRBY', KEYS[3], ARGV[3] .. '|n', -ARGV[5]) <= 0 then
  for _, member in ipairs({ '|n', '|updated', '|last' }) do
    redis.call('HDEL', KEYS[3], ARGV[3] .. member)
  end
end
return deleted
