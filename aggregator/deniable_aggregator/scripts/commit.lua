-- Count entries exactly once: check that the consumer still owns every one, then add, acknowledge and delete.
-- KEYS: stream, the two hashes of the function `gone`, then (tally, index of its metric) for each stratum.
-- ARGV: group, consumer, now, number of ids, ids..., then for each stratum its name, and either '' and "cell delta cell delta ..."
-- or the number of a cell and the deltas from there on, as big-endian int64.
-- Returns the ids that the consumer does not own (another one claimed them, or they are counted); then nothing is written.
local group, consumer, now, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local owned, stale = {}, {}
if count > 0 then -- they were handed out in a row, mostly
  local found = redis.call('XPENDING', KEYS[1], group, ARGV[5], ARGV[4 + count], count, consumer)
  for i = 1, #found do
    owned[found[i][1]] = true
  end
end
for i = 5, 4 + count do
  if not owned[ARGV[i]] and #redis.call('XPENDING', KEYS[1], group, ARGV[i], ARGV[i], 1, consumer) == 0 then
    stale[#stale + 1] = ARGV[i]
  end
end
if #stale > 0 then
  return stale
end

local names = {}
for at = 5 + count, #ARGV, 3 do
  names[#names + 1] = ARGV[at]
end
local dropped = gone(2, names)

local function add_some(key, text)
  local args, n = {'OVERFLOW', 'FAIL'}, 2
  for cell, delta in string.gmatch(text, '(%d+) (%d+)') do
    args[n + 1], args[n + 2], args[n + 3], args[n + 4] = 'INCRBY', 'i64', '#' .. cell, delta
    n = n + 4
    if n >= 4000 then -- Lua unpacks some 8,000 values at most
      redis.call('BITFIELD', key, unpack(args, 1, n))
      n = 2
    end
  end
  if n > 2 then
    redis.call('BITFIELD', key, unpack(args, 1, n))
  end
end

-- Lua's numbers are exact to 2^53, which no count reaches.
local function add_many(key, first, deltas)
  local held = redis.call('GETRANGE', key, first * 8, first * 8 + #deltas - 1)
  held = held .. string.rep('\0', #deltas - #held)
  local sums, step = {}, 1000
  for at = 1, #deltas, step * 8 do
    local n = math.min(step, (#deltas - at + 1) / 8)
    local format = '>' .. string.rep('i8', n)
    local cells, more = {struct.unpack(format, held, at)}, {struct.unpack(format, deltas, at)}
    for i = 1, n do
      cells[i] = cells[i] + more[i]
    end
    sums[#sums + 1] = struct.pack(format, unpack(cells, 1, n))
  end
  redis.call('SETRANGE', key, first * 8, table.concat(sums))
end

-- A script is not rolled back when it fails half-way, so nothing below may fail: cells and deltas are integers that the
-- worker computed, and a commit that would not fit in memory is refused by Redis before the script starts.
local at = 5 + count
for k = 4, #KEYS, 2 do
  if not dropped[k / 2 - 1] then
    if ARGV[at + 1] == '' then
      add_some(KEYS[k], ARGV[at + 2])
    else
      add_many(KEYS[k], tonumber(ARGV[at + 1]), ARGV[at + 2])
    end
    redis.call('HSET', KEYS[k + 1], ARGV[at], now)
  end
  at = at + 3
end
for i = 5, 4 + count, 4000 do
  local last = math.min(i + 3999, 4 + count)
  redis.call('XACK', KEYS[1], group, unpack(ARGV, i, last))
  redis.call('XDEL', KEYS[1], unpack(ARGV, i, last))
end
return {}
