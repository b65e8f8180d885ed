-- Find entries of a stream that a consumer does not own: another one claimed them, or they are counted.
-- KEYS[1]: stream.  ARGV from `first` on: their ids.
local function stale(group, consumer, first, count)
  local owned, found = {}, {}
  if count > 0 then -- they were handed out in a row, mostly
    local pending = redis.call('XPENDING', KEYS[1], group, ARGV[first], ARGV[first + count - 1], count, consumer)
    for i = 1, #pending do
      owned[pending[i][1]] = true
    end
  end
  for i = first, first + count - 1 do
    if not owned[ARGV[i]] and #redis.call('XPENDING', KEYS[1], group, ARGV[i], ARGV[i], 1, consumer) == 0 then
      found[#found + 1] = ARGV[i]
    end
  end
  return found
end

-- Remove counted entries.
local function remove(group, first, count)
  for i = first, first + count - 1, 4000 do -- Lua unpacks some 8,000 values at most
    local last = math.min(i + 3999, first + count - 1)
    redis.call('XACK', KEYS[1], group, unpack(ARGV, i, last))
    redis.call('XDEL', KEYS[1], unpack(ARGV, i, last))
  end
end
