-- Append a batch exactly once.
-- KEYS: stream, idempotency key.  ARGV: entry, what to remember, cap of the backlog, seconds to remember.
local previous = redis.call('GET', KEYS[2])
if previous then
  return {'duplicate', previous}
end
-- Nothing undelivered is ever trimmed: a full backlog refuses, and the device tries again later.
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[3]) then
  return {'full', ''}
end
redis.call('XADD', KEYS[1], '*', 'd', ARGV[1])
redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[4])
return {'appended', ''}
