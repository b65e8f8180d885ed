-- Count entries exactly once: check that the consumer still owns every one, then add, acknowledge and delete.
-- KEYS: stream, the two hashes of the function `gone`, then (tally, index of its metric) for each stratum.
-- ARGV: group, consumer, now, number of ids, ids..., then for each stratum its name, and what the function `add` is told: either ''
-- and "cell delta cell delta ...", or the number of a cell and the deltas from there on, as big-endian int64.
-- Returns the ids that the consumer does not own; then nothing is written.
local group, now, count = ARGV[1], ARGV[3], tonumber(ARGV[4])
local others = stale(group, ARGV[2], 5, count)
if #others > 0 then
  return others
end

local names = {}
for at = 5 + count, #ARGV, 3 do
  names[#names + 1] = ARGV[at]
end
local dropped = gone(2, names)

-- A script is not rolled back when it fails half-way, so nothing below may fail: cells and deltas are integers that the
-- worker computed, and a commit that would not fit in memory is refused by Redis before the script starts.
local at = 5 + count
for k = 4, #KEYS, 2 do
  if not dropped[k / 2 - 1] then
    add(KEYS[k], ARGV[at + 1], ARGV[at + 2])
    redis.call('HSET', KEYS[k + 1], ARGV[at], now)
  end
  at = at + 3
end
remove(group, 5, count)
return {}
