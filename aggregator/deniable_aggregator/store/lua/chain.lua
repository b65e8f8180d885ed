-- Look whether an audit log still ends with the entry that was seen ('' for an empty one): only then does the next one fit.
-- Returns nil if it does, else the last entries, from which the caller goes on.
local function grown(key, seen)
  if (redis.call('LINDEX', key, -1) or '') ~= seen then
    return redis.call('LRANGE', key, -16, -1)
  end
end
