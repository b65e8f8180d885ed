-- Count refused reports of a day, and note the hour. What clients write, a version and a definition, makes only so many fields.
-- KEYS: the day, the hours.  ARGV: most such fields, seconds for which both are kept, then of each number: its field, the field
-- that it is added to where there are too many, the number.
local most, life = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = tonumber(redis.call('TIME')[1])
local hour = string.format('%.0f', now - now % 3600)
for i = 3, #ARGV, 3 do
  local field = ARGV[i]
  if field ~= ARGV[i + 1] and redis.call('HEXISTS', KEYS[1], field) == 0 then
    if redis.call('HINCRBY', KEYS[1], '|fields', 0) >= most then -- who counts need not read
      field = ARGV[i + 1]
    else
      redis.call('HINCRBY', KEYS[1], '|fields', 1)
    end
  end
  redis.call('HINCRBY', KEYS[1], field, ARGV[i + 2])
  local reason = string.match(ARGV[i + 1], '^[^|]*|[^|]*|[^|]*')
  local first, last = string.match(redis.call('HGET', KEYS[2], reason) or '', '^(%d+) (%d+)$')
  if not first or hour - last > life then
    first = hour
  end
  redis.call('HSET', KEYS[2], reason, first .. ' ' .. hour)
end
redis.call('EXPIRE', KEYS[1], life)
redis.call('EXPIRE', KEYS[2], life)
