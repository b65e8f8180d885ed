-- Find an upload among those accepted: in today's hashes, in those of earlier days that are remembered, and in tomorrow's,
-- because the clock may have been set back over midnight.
-- KEYS[key]: the beginning of the hashes' names.  Returns the record, or nil.
local function seen(key, bucket, field, today, days)
  for day = today + 1, today - days, -1 do
    local found = redis.call('HGET', KEYS[key] .. day .. ':' .. bucket, field)
    if found then
      return found
    end
  end
end
