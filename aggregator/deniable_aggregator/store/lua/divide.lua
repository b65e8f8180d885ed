-- Fix the number of an app's partitions, unless it is fixed.
-- KEYS: the number.  ARGV: the number, if none is fixed.
-- Returns the number.
local fixed = redis.call('GET', KEYS[1])
if not fixed then -- a store that is full refuses to write
  redis.call('SETNX', KEYS[1], ARGV[1]) -- no user of the store may SET it
end
return fixed or ARGV[1]
