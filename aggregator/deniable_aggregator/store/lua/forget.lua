-- Delete consumers that are idle for long, with nothing pending; entries of a deleted consumer would be lost. If a consumer lives
-- after all, it is created again when it reads.
-- KEYS: stream.  ARGV: group, milliseconds without a sign of life.  Returns how many were deleted.
-- A stream that nobody has joined yet has none.
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if consumers.err then
  if string.find(consumers.err, 'NOGROUP') or string.find(consumers.err, 'no such key') then
    return 0
  end
  return consumers
end
local forgotten = 0
for _, told in ipairs(consumers) do
  local consumer = {}
  for i = 1, #told, 2 do
    consumer[told[i]] = told[i + 1]
  end
  if consumer.pending == 0 and consumer.idle >= tonumber(ARGV[2]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer.name)
    forgotten = forgotten + 1
  end
end
return forgotten
