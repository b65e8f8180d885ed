-- Find names whose data are gone for good: the period was deleted, or the metric erased. Without this a late batch would begin a
-- tally anew.
-- KEYS[key]: hash from each definition of a metric to its last deleted period.
-- KEYS[key + 1]: hash from the digest of a metric to its highest version that was erased with all before it. It also has the
-- digests of versions that were erased alone.
-- Returns a table that is true in the places of such names.
local function gone(key, names)
  local found, step = {}, 1000
  if redis.call('EXISTS', KEYS[key]) == 1 then
    for first = 1, #names, step do
      local definitions, periods = {}, {}
      for i = first, math.min(first + step - 1, #names) do
        local n = #definitions + 1
        definitions[n], periods[n] = string.match(names[i], '^(.*)|([^|]*)|[^|]*$')
      end
      local last = redis.call('HMGET', KEYS[key], unpack(definitions))
      for n = 1, #periods do
        if last[n] and periods[n] <= last[n] then -- names of periods of one definition sort as they follow one another
          found[first + n - 1] = true
        end
      end
    end
  end
  if redis.call('EXISTS', KEYS[key + 1]) == 1 then
    for i = 1, #names do
      local metric, version = string.match(names[i], '^([^|]*)|([^|]*)|')
      local told = redis.call('HMGET', KEYS[key + 1], redis.sha1hex(metric), redis.sha1hex(metric .. '|' .. version))
      if told[2] or (told[1] and (tonumber(version) or 0) <= tonumber(told[1])) then
        found[i] = true
      end
    end
  end
  return found
end
