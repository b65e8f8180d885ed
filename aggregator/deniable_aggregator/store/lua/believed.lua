-- Return for how many seconds what a process said is believed, `seconds` at most.
-- What was said before the store started may come from a copy, whose processes are dead. Its clock is read to the second.
local function believed(seconds)
  local state = redis.pcall('INFO', 'server')
  local uptime = type(state) == 'string' and tonumber(string.match(state, 'uptime_in_seconds:(%d+)'))
  return uptime and math.min(seconds, uptime + 2) or seconds
end
