-- Add to the big-endian int64 cells of a tally: either "cell delta cell delta ...", or all the deltas from a cell on.
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

local function add(key, first, deltas)
  if first == '' then
    add_some(key, deltas)
  else
    add_many(key, tonumber(first), deltas)
  end
end
