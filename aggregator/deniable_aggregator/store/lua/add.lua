-- Add to a tally: either additions, each of a cell and a delta (big-endian, 32 bits each, in order), or the deltas of all cells from
-- a given one on (big-endian int64).
-- A tally begins as a list: 'L', the number of cells, and the additions in the order in which they came. When cells would be no
-- longer, or MOST additions have come, it becomes cells: big-endian int64. It becomes a list again if it would get so much longer
-- that this is less. So a few reports take no more room than they need. Only a list has a length that leaves 5 when divided by 8.
local MOST = 32768
local budget = MOST -- additions that this script turns into cells, and one list more: that takes some 20 ms

local function number(text, at)
  local a, b, c, d = string.byte(text, at, at + 3)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

local function written(n)
  return string.char(math.floor(n / 16777216) % 256, math.floor(n / 65536) % 256, math.floor(n / 256) % 256, n % 256)
end

-- Add to cells, by their numbers.
local function add_some(key, additions)
  local args, n = {'OVERFLOW', 'FAIL'}, 2
  for at = 1, #additions, 8 do
    local delta = number(additions, at + 4)
    args[n + 1], args[n + 2], args[n + 3] = 'INCRBY', 'i64', '#' .. number(additions, at)
    args[n + 4] = delta < 2147483648 and delta or delta - 4294967296
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

-- Add to cells in a row. Lua's numbers are exact to 2^53, which no count reaches.
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

-- Write deltas of cells in a row as additions, or return nil if one is too large.
local function listed(first, deltas)
  local additions = {}
  for at = 1, #deltas, 8 do
    local high, low = string.sub(deltas, at, at + 3), string.sub(deltas, at + 4, at + 7)
    local negative = string.byte(low) > 127
    if high ~= (negative and '\255\255\255\255' or '\0\0\0\0') then
      return nil
    end
    if low ~= '\0\0\0\0' then
      additions[#additions + 1] = written(first + (at - 1) / 8) .. low
    end
  end
  return table.concat(additions)
end

-- Append to a list, or begin one; return whether the tally is one still.
local function append(key, size, first, deltas)
  local cells, held, more = size > 0 and number(redis.call('GETRANGE', key, 1, 4), 1) or 0, math.max(size - 5, 0) / 8, #deltas / 8
  local most = math.max(cells, first and first + more or number(deltas, #deltas - 7) + 1)
  local late = held > budget and budget < MOST
  local additions = (held + more < math.min(MOST, most) or late) and (first and listed(first, deltas) or not first and deltas)
  if additions then
    if most > cells then
      redis.call('SETRANGE', key, 0, 'L' .. written(most))
    end
    redis.call('APPEND', key, additions)
  elseif held > 0 then
    budget = budget - held
    local list = redis.call('GETRANGE', key, 5, -1)
    redis.call('DEL', key)
    redis.call('SETRANGE', key, cells * 8 - 8, '\0\0\0\0\0\0\0\0')
    add_some(key, list)
  end
  return additions
end

-- Make a list of cells that are far fewer than they would be with more of them.
local function shorten(key, size, first, deltas)
  local more = #deltas / 8
  local most = first and first + more or number(deltas, #deltas - 7) + 1
  if size / 8 + more >= MOST or 8 * most < 2 * (size + 8 * more) then
    return size
  end
  local additions = listed(0, redis.call('GETRANGE', key, 0, -1))
  if not additions then
    return size
  end
  redis.call('DEL', key)
  return redis.call('APPEND', key, 'L' .. written(size / 8) .. additions)
end

local function add(key, first, deltas)
  if #deltas == 0 then
    return
  end
  local size, from = redis.call('STRLEN', key), tonumber(first)
  if size > 0 and size % 8 == 0 then
    size = shorten(key, size, from, deltas)
  end
  if (size == 0 or size % 8 == 5) and append(key, size, from, deltas) then
    return
  end
  if from then
    add_many(key, from, deltas)
  else
    add_some(key, deltas)
  end
end
