-- Count refused reports of a day. What clients write, a version and a definition, makes only so many fields.
-- KEYS: the day.  ARGV: most such fields, seconds for which the day is kept, then of each number: its field, the field that it
-- is added to where there are too many, the number.
local most = tonumber(ARGV[1])
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
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
