-- Delete the releases of a period, all or nothing, unless its release has changed since it was read.
-- KEYS: index of the metric's releases; the summaries; as many indexes as ARGV[5] says; and the other keys to delete.
-- ARGV: the period's field in the index of releases, its expected record ('' for none), the definition, number of published reports
-- that are deleted, number of indexes, then the fields to delete from each of these.
-- Returns how many keys there were.
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then
  return 0
end
local deleted = discard(3, tonumber(ARGV[5]), 6)
if ARGV[4] ~= '0' and redis.call('HINCRBY', KEYS[2], ARGV[3] .. '|n', -ARGV[4]) <= 0 then
  for _, member in ipairs({ '|n', '|updated', '|last' }) do
    redis.call('HDEL', KEYS[2], ARGV[3] .. member)
  end
end
return deleted
