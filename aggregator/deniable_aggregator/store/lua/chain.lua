-- Check that an audit log still ends with the expected entry ('' for an empty log): only then does the next one fit.
-- Returns nil if it does, else the last entries, from which the caller continues.
local function grown(key, seen)
  if (redis.call('LINDEX', key, -1) or '') ~= seen then
    return redis.call('LRANGE', key, -16, -1)
  end
end
