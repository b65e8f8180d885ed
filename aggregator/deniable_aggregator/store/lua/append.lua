-- Append a batch exactly once.
-- KEYS: stream, the beginning of the names of upload records, then those of the function `limited`.
-- ARGV: entry, the secret, the upload's bucket and field, its record, cap of the backlog, days to remember, number of limits that
-- hold for every request; then those of `limited`. The other limits hold for what is appended.
-- Names made with another secret than the store's are useless. A partition without a secret is new, or was emptied.
local secret = redis.call('GET', KEYS[2] .. 'secret')
if not secret then
  return {'new', ''}
elseif secret ~= ARGV[2] then
  return {'secret', secret}
end
local requests = tonumber(ARGV[8])
local excess = limited(3, 9, 0, requests - 1)
if excess then
  return {'limited', excess}
end
local now = tonumber(redis.call('TIME')[1])
local today = math.floor(now / 86400)
local previous = seen(2, ARGV[3], ARGV[4], today, ARGV[7])
if previous then
  return {'duplicate', previous}
end
-- Undelivered entries are never removed: a full backlog refuses uploads, and the device tries again later.
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[6]) then
  return {'full', ''}
end
excess = limited(3, 9, requests, #KEYS - 3)
if excess then
  return {'limited', excess}
end
enter(KEYS[1], now, {'d', ARGV[1]})
local hour = string.format('%.0f', now - now % 3600)
if redis.call('HGET', KEYS[2] .. 'hour', 'last') ~= hour then
  redis.call('HSET', KEYS[2] .. 'hour', 'last', hour)
end
-- An expiry shows the day only.
local hash = KEYS[2] .. today .. ':' .. ARGV[3]
redis.call('HSET', hash, ARGV[4], ARGV[5])
redis.call('EXPIREAT', hash, (today + 1 + ARGV[7]) * 86400, 'NX')
return {'appended', ''}
