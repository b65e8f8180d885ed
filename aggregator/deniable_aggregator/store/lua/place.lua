-- Check that staged data are complete.
local function complete(staged, length)
  return redis.call('STRLEN', staged) == tonumber(length)
end

-- Move staged data to their place, for good.
local function place(staged, key)
  redis.call('PERSIST', staged)
  redis.call('RENAME', staged, key)
end
