-- Put a dead letter back into the stream, exactly once.
-- KEYS: dead letters, stream.  ARGV: id, cap of the backlog.
-- Returns: 'requeued', 'missing', 'full', or 'empty' if nothing is left that could be counted.
local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
if #found == 0 then
  return 'missing'
end
local body
for i = 1, #found[1][2], 2 do
  if found[1][2][i] == 'd' then
    body = found[1][2][i + 1]
  end
end
if not body then
  return 'empty'
end
if redis.call('XLEN', KEYS[2]) >= tonumber(ARGV[2]) then
  return 'full'
end
enter(KEYS[2], tonumber(redis.call('TIME')[1]), {'d', body})
redis.call('XDEL', KEYS[1], ARGV[1])
return 'requeued'
