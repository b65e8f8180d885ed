-- Fix a value for good, unless it is fixed.
-- KEYS: the value.  ARGV: what it is to be, if it is not fixed.
-- Returns it.
local fixed = redis.call('GET', KEYS[1])
if not fixed then -- a store that is full refuses to write
  redis.call('SETNX', KEYS[1], ARGV[1]) -- no user of the store may SET it
end
return fixed or ARGV[1]
