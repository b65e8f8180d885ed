-- Publish a release whose cells are staged, unless another worker was faster, it is closed, or staged data are missing.
-- KEYS: index of the metric's releases, the snapshot, the audit log, the summaries, then for each cell its staged data and its
-- tally, then the staged next snapshot, if there is one.
-- ARGV: the field of all reports in the index, its expected record ('' for none), the expected end of the audit log, the entry to
-- append to it; for the summary the definition, the number of new reports, the period, 1 if it is closed and the hour; then
-- (length, field, record) for each cell, then the length of the next snapshot, if there is one.
-- Returns 1 if it was published, 0 if not, the last entries if the log ends differently.
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then
  return 0
end
local last = grown(KEYS[3], ARGV[3])
if last then
  return last
end
for k = 5, #KEYS, 2 do
  if not complete(KEYS[k], ARGV[10 + (k - 5) / 2 * 3]) then
    return 0
  end
end
redis.call('HINCRBY', KEYS[4], ARGV[5] .. '|n', ARGV[6])
redis.call('HSET', KEYS[4], ARGV[5] .. '|updated', ARGV[9])
for _, member in ipairs({ '|last', ARGV[8] == '1' and '|closed' or nil }) do
  if (redis.call('HGET', KEYS[4], ARGV[5] .. member) or '') < ARGV[7] then
    redis.call('HSET', KEYS[4], ARGV[5] .. member, ARGV[7])
  end
end
local k = 5
for at = 10, #ARGV - 2, 3 do
  place(KEYS[k], KEYS[k + 1])
  redis.call('HSET', KEYS[1], ARGV[at + 1], ARGV[at + 2])
  k = k + 2
end
if KEYS[k] then
  place(KEYS[k], KEYS[2])
else
  redis.call('DEL', KEYS[2])
end
redis.call('RPUSH', KEYS[3], ARGV[4])
return 1
