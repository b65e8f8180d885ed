-- Count entries exactly once: check that the consumer still owns every one, then add, acknowledge and delete.
-- KEYS: stream, the two hashes of the function `gone`, the one of `filed`, then for each file of the archive (names of its stratum's
-- files, tally), then (tally, index of its metric) for each stratum.
-- ARGV: group, consumer, now, number of ids, ids..., then for each file the name of its stratum, 'file' and its name; then for each
-- stratum its name, and the arguments of the function `add`: either '' and additions, or the number of a cell and the deltas from
-- there on.
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
local kept = filed(4, names)
local dropped = gone(2, kept)

-- A script that fails half-way is not rolled back, so nothing below may fail. Cells and deltas are integers that the worker
-- computed. Redis refuses a commit that does not fit into memory before the script starts.
local at = 5 + count
for i = 1, #names do
  local key, other = moved(KEYS[3 + 2 * i], names[i], kept[i]), KEYS[4 + 2 * i]
  if not dropped[i] and ARGV[at + 1] == 'file' then
    note(key, moved(other, names[i], kept[i]), ARGV[at + 2])
  elseif not dropped[i] then
    add(key, ARGV[at + 1], ARGV[at + 2])
    redis.call('HSET', other, kept[i], now)
  end
  at = at + 3
end
remove(group, 5, count)
return {}
