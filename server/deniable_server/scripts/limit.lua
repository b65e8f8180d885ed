-- Count one request against some limits, in their order, up to the first that is used up.
-- KEYS: a counter for each limit.  ARGV: (requests allowed, seconds of the window) for each.
-- Returns the place of the limit that is used up, and the seconds until it is open again; or 0 and 0.
for i = 1, #KEYS do
  local count = redis.call('INCR', KEYS[i])
  local left = redis.call('TTL', KEYS[i])
  if left < 0 then
    left = tonumber(ARGV[2 * i])
    redis.call('EXPIRE', KEYS[i], left)
  end
  if count > tonumber(ARGV[2 * i - 1]) then
    return {i, math.max(left, 1)}
  end
end
return {0, 0}
