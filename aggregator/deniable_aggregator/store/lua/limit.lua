-- Count for the limits from `first` to `last`, in their order, up to the first that is used up.
-- From KEYS[key] on: their counters.  From ARGV[arg] on: (amount allowed, seconds of the window, amount) for each.
-- Returns the place of the limit that is used up, from 0, and the milliseconds until its window ends; nil if none is.
local function limited(key, arg, first, last)
  for i = first, last do
    local allowed, window, amount = tonumber(ARGV[arg + 3 * i]), ARGV[arg + 3 * i + 1], ARGV[arg + 3 * i + 2]
    local count = redis.call('INCRBY', KEYS[key + i], amount)
    if count == tonumber(amount) then
      redis.call('EXPIRE', KEYS[key + i], window)
    end
    if count > allowed then
      local left = redis.call('PTTL', KEYS[key + i])
      if left < 0 then -- it lost its end, as a store restored from elsewhere may have it
        left = tonumber(window) * 1000
        redis.call('EXPIRE', KEYS[key + i], window)
      end
      return {i, math.max(left, 1)}
    end
  end
end
