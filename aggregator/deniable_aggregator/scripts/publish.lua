-- Publish a release, unless another worker was quicker or it is closed.
-- KEYS: index of the metric's releases, the snapshot, the audit log, the summaries, then a tally for each cell.
-- ARGV: the field of the whole in the index, what is noted there now ('' for nothing), the next snapshot ('' for none), how the
-- audit log ends, the entry to append to it; of the summary the definition, the reports that come to it, the period, 1 if it is
-- closed and the hour; then (field, note, cells) for each cell.
-- Returns 1 if it was published, 0 if not, the last entries if the log ends otherwise.
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then
  return 0
end
local last = grown(KEYS[3], ARGV[4])
if last then
  return last
end
if ARGV[3] == '' then
  redis.call('DEL', KEYS[2])
else
  redis.call('SET', KEYS[2], ARGV[3])
end
redis.call('HINCRBY', KEYS[4], ARGV[6] .. '|n', ARGV[7])
redis.call('HSET', KEYS[4], ARGV[6] .. '|updated', ARGV[10])
for _, member in ipairs({ '|last', ARGV[9] == '1' and '|closed' or nil }) do
  if (redis.call('HGET', KEYS[4], ARGV[6] .. member) or '') < ARGV[8] then
    redis.call('HSET', KEYS[4], ARGV[6] .. member, ARGV[8])
  end
end
local at = 11
for k = 5, #KEYS do
  redis.call('SET', KEYS[k], ARGV[at + 2])
  redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
  at = at + 3
end
redis.call('RPUSH', KEYS[3], ARGV[5])
return 1
