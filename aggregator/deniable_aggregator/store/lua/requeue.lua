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
-- After the last entry, with its coarse time: ids show only the hour.
local last, hour = '0-0', math.floor(redis.call('TIME')[1] / 3600) * 3600000
if redis.call('EXISTS', KEYS[2]) == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[2])
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      last = info[i + 1]
    end
  end
end
local time = math.max(hour, tonumber(string.match(last, '^%d+')))
redis.call('XADD', KEYS[2], string.format('%.0f-*', time), 'd', body)
redis.call('XDEL', KEYS[1], ARGV[1])
return 'requeued'
