-- Append an entry to an audit log, and run its command, at one moment.
-- KEYS: audit log, then the key of the command, if there is one.  ARGV: last entry seen, entry, then the command and its
-- arguments.
-- Returns 1; 0 if the command changed nothing, and nothing is logged; the last entries if the log has grown meanwhile.
local last = grown(KEYS[1], ARGV[1])
if last then
  return last
end
if ARGV[3] then
  local done = redis.call(ARGV[3], KEYS[2], unpack(ARGV, 4))
  if done == 0 or done == false then
    return 0
  end
end
redis.call('RPUSH', KEYS[1], ARGV[2])
return 1
