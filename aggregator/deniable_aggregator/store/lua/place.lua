-- Tell whether what is staged is all there.
local function complete(staged, length)
  return redis.call('STRLEN', staged) == tonumber(length)
end

-- Put what is staged in its place, for good.
local function place(staged, key)
  redis.call('PERSIST', staged)
  redis.call('RENAME', staged, key)
end
