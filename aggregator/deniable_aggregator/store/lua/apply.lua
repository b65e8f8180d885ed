-- Add a staged piece, unless another worker was faster; after the last piece of a commit, record that it is done.
-- KEYS: numbers of commits decided and done, the staged pieces, the two hashes of the function `gone`, where the piece is added,
-- the index of its metric, the hash of the function `filed`, the tally.
-- ARGV: number of the commit, the header of the piece ('' for none), then its contents: the stratum's name, now, and a cell for the
-- function `add`, or 'file' for the function `note`.
-- Returns 1 if it was added, or belonged to deleted data; 0 if another worker was faster.
local header = redis.call('LINDEX', KEYS[2], 0) or ''
if tonumber(redis.call('HGET', KEYS[1], 'done') or 0) + 1 ~= tonumber(ARGV[1]) or header ~= ARGV[2] then
  return 0
end
if header ~= '' then
  local name = filed(7, {ARGV[3]})[1]
  if not gone(3, {name})[1] then
    local key, content = moved(KEYS[5], ARGV[3], name), redis.call('LINDEX', KEYS[2], 1)
    if ARGV[5] == 'file' then
      note(key, moved(KEYS[8], ARGV[3], name), content)
    else
      add(key, ARGV[5], content)
      redis.call('HSET', KEYS[6], name, ARGV[4])
    end
  end
  redis.call('LPOP', KEYS[2], 2)
end
if redis.call('LLEN', KEYS[2]) == 0 then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('HINCRBY', KEYS[1], 'done', 1)
end
return 1
