-- Append a batch exactly once.
-- KEYS: stream, idempotency key, then those of the function `limited`.
-- ARGV: entry, what to remember, cap of the backlog, seconds to remember, rounded up to the hour; then those of `limited`.
local excess = limited(3, 5)
if excess then
  return {'limited', excess}
end
local previous = redis.call('GET', KEYS[2])
if previous then
  return {'duplicate', previous}
end
-- Nothing undelivered is ever trimmed: a full backlog refuses, and the device tries again later.
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[3]) then
  return {'full', ''}
end
-- What is kept, and what Redis writes to disk, tells the hour of an upload and no more: neither ids nor expiries are finer.
local hour = math.floor(redis.call('TIME')[1] / 3600) * 3600
local id = redis.pcall('XADD', KEYS[1], string.format('%.0f-*', hour * 1000), 'd', ARGV[1])
if type(id) == 'table' then
  if not string.find(tostring(id.err), 'equal or smaller', 1, true) then
    return id
  end
  -- The stream has later ids, from before the clock was set back.
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  local last = '0-0'
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      last = info[i + 1]
    end
  end
  redis.call('XADD', KEYS[1], string.match(last, '%d+') .. '-*', 'd', ARGV[1])
end
redis.call('SET', KEYS[2], ARGV[2], 'EXAT', string.format('%.0f', hour + 3600 + ARGV[4]))
return {'appended', ''}
