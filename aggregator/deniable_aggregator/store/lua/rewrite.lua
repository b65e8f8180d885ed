-- Write the dead letters again under their ids, some with another batch, others not at all. Entries that are only deleted stay in
-- the stream's blocks until all of a block is deleted.
-- KEYS: dead letters.  ARGV: id and batch ('' for none) of each that changes.  Returns how many of these existed.
local changed, found = {}, 0
for i = 1, #ARGV, 2 do
  changed[ARGV[i]] = ARGV[i + 1]
end
local letters = redis.call('XRANGE', KEYS[1], '-', '+')
redis.call('DEL', KEYS[1])
for _, letter in ipairs(letters) do
  local fields, batch = letter[2], changed[letter[1]]
  if batch then
    found = found + 1
    for i = 1, #fields, 2 do
      if fields[i] == 'd' then
        fields[i + 1] = batch
      end
    end
  end
  if batch ~= '' then
    redis.call('XADD', KEYS[1], letter[1], unpack(fields))
  end
end
return found
