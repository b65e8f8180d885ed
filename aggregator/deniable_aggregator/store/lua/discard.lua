-- Delete fields from indexes, and then keys. Deletions come first: in a full store a script may write only after it has deleted.
-- KEYS: from `first` on as many indexes as `indexes` says, then the keys.  ARGV: from `field` on the fields, of each index.
-- Returns how many keys there were.
local function discard(first, indexes, field)
  for k = first, first + indexes - 1 do
    for i = field, #ARGV do
      redis.call('HDEL', KEYS[k], ARGV[i])
    end
  end
  local deleted = 0
  for k = first + indexes, #KEYS do
    deleted = deleted + redis.call('DEL', KEYS[k])
  end
  return deleted
end
