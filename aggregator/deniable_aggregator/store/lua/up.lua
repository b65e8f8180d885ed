-- Return for how many seconds the store runs, or -1 where it does not say.
-- KEYS: any of the app.
local state = redis.pcall('INFO', 'server')
return type(state) == 'string' and tonumber(string.match(state, 'uptime_in_seconds:(%d+)')) or -1
