-- Look at an app's stream, dead letters and workers at one moment, without handing out any report.
-- KEYS: stream, dead letters, workers, when a worker had read everything.  ARGV: group, seconds a worker lives without a beat.
-- Returns: batches, those of them in hand, milliseconds that any waits at most (-1: no worker ever came), dead letters, workers.
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local total, pending, lag = redis.call('XLEN', KEYS[1]), 0, 0
if total > 0 then
  local group = redis.pcall('XPENDING', KEYS[1], ARGV[1])
  if not group.err then
    pending = group[1]
  end
  -- Stream ids tell no more than the hour, so go by when the workers had read all that there was.
  if total > pending then
    local caught = redis.call('GET', KEYS[4])
    lag = caught and math.max(0, now - tonumber(caught)) * 1000 or -1
  end
  if pending > 0 and lag >= 0 then
    lag = math.max(lag, redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1)[1][3])
  end
end
local alive = redis.call('ZCOUNT', KEYS[3], now - tonumber(ARGV[2]), '+inf')
return {total, pending, math.floor(lag), redis.call('XLEN', KEYS[2]), alive}
