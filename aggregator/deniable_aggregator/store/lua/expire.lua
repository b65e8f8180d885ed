-- Delete the sums of a period in a partition, all or nothing.
-- KEYS: hash from each definition to its last deleted period; as many indexes as ARGV[3] says; and the other keys to delete.
-- ARGV: the definition, the period's name, number of indexes, then the fields to delete from each of these.
-- Returns how many keys there were.
local deleted = discard(2, tonumber(ARGV[3]), 4)
local last = redis.call('HGET', KEYS[1], ARGV[1])
if not last or last < ARGV[2] then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
return deleted
