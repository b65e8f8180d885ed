-- Delete the upload records of the oldest day that has any, but never today's; at most once a minute.
-- KEYS: the beginning of the names of upload records.  ARGV: buckets of a day, days for which uploads are remembered.
-- Returns the day (counted from 1970) whose records were deleted, or nil.
local now = tonumber(redis.call('TIME')[1])
local mark = KEYS[1] .. 'dropped'
if redis.call('HGET', mark, 'at') then
  return
end
redis.call('HSET', mark, 'at', '')
redis.call('EXPIREAT', mark, now + 60)
local today = math.floor(now / 86400)
for day = today - ARGV[2], today - 1 do
  local found = 0
  for bucket = 0, ARGV[1] - 1 do
    found = found + redis.call('EXPIREAT', KEYS[1] .. day .. ':' .. string.format('%x', bucket), 1)
  end
  if found > 0 then
    return day
  end
end
