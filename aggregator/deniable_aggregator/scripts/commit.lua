-- Count entries exactly once: check that the consumer still owns every one, then add, acknowledge and delete.
-- KEYS: stream, then (tally, index of its metric) for each stratum.
-- ARGV: group, consumer, now, number of ids, ids..., then (stratum, "cell delta cell delta ...") for each stratum.
-- Returns the ids that the consumer does not own (another one claimed them, or they are counted); then nothing is written.
local group, consumer, now, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local stale = {}
for i = 5, 4 + count do
  if #redis.call('XPENDING', KEYS[1], group, ARGV[i], ARGV[i], 1, consumer) == 0 then
    stale[#stale + 1] = ARGV[i]
  end
end
if #stale > 0 then
  return stale
end
-- A script is not rolled back when it fails half-way, so nothing below may fail: cells and deltas are integers that the
-- worker computed, and a commit that would not fit in memory is refused by Redis before the script starts.
local at = 5 + count
for k = 2, #KEYS, 2 do
  local args, n = {'OVERFLOW', 'FAIL'}, 2
  for cell, delta in string.gmatch(ARGV[at + 1], '(%d+) (%d+)') do
    args[n + 1], args[n + 2], args[n + 3], args[n + 4] = 'INCRBY', 'i64', '#' .. cell, delta
    n = n + 4
    if n >= 4000 then -- Lua unpacks some 8,000 values at most
      redis.call('BITFIELD', KEYS[k], unpack(args, 1, n))
      n = 2
    end
  end
  if n > 2 then
    redis.call('BITFIELD', KEYS[k], unpack(args, 1, n))
  end
  redis.call('HSET', KEYS[k + 1], ARGV[at], now)
  at = at + 2
end
for i = 5, 4 + count do
  redis.call('XACK', KEYS[1], group, ARGV[i])
  redis.call('XDEL', KEYS[1], ARGV[i])
end
return {}
