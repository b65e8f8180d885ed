-- Return the names under which strata are counted: a sealed period counts in the first period that is not sealed.
-- KEYS[key]: the summaries, which have that period for each definition.
-- Returns the names, some with another period.
local function filed(key, names)
  local found, step = {}, 1000
  for first = 1, #names, step do
    local last, fields = math.min(first + step - 1, #names), {}
    for i = first, last do
      fields[#fields + 1] = string.match(names[i], '^(.*)|[^|]*|[^|]*$') .. '|open'
    end
    local open = redis.call('HMGET', KEYS[key], unpack(fields))
    for i = first, last do
      local definition, period, segment = string.match(names[i], '^(.*)|([^|]*)|([^|]*)$')
      local from = open[i - first + 1]
      if from and period < from then -- names of periods of one definition sort as they follow one another
        period = from
      end
      found[i] = definition .. '|' .. period .. '|' .. segment
    end
  end
  return found
end

-- Return the key of a tally with another name at its end.
local function moved(key, name, other)
  return string.sub(key, 1, #key - #name) .. other
end
