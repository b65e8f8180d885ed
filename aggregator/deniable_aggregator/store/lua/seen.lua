-- Look for an upload among those that were taken: in today's hashes, in those of the days before for which uploads are remembered,
-- and in tomorrow's, since the clock may have been set back over midnight.
-- KEYS[key]: how the hashes' names begin.  Returns what was remembered, or nil.
local function seen(key, bucket, field, today, days)
  for day = today + 1, today - days, -1 do
    local found = redis.call('HGET', KEYS[key] .. day .. ':' .. bucket, field)
    if found then
      return found
    end
  end
end
