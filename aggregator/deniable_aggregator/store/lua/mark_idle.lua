-- Mark the entries of a dead consumer as idle, so that they are taken over. If the clock was set back, their idle time is too
-- short. The number of deliveries stays.
-- KEYS: stream.  ARGV: group, consumer, milliseconds.  Returns how many entries were less idle.
local args = {}
for _, entry in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 4000, ARGV[2])) do
  if entry[3] < tonumber(ARGV[3]) then
    args[#args + 1] = entry[1]
  end
end
local found = #args
if found > 0 then
  for _, option in ipairs({'IDLE', ARGV[3], 'JUSTID'}) do
    args[#args + 1] = option
  end
  redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, unpack(args))
end
return found
