-- Read the state of an app's stream, dead letters and workers at one moment, without reading any report.
-- KEYS: stream, dead letters, workers, the record of `beat.lua`.  ARGV: group, seconds for which a worker counts as alive.
-- Returns: batches, pending ones, the longest wait in milliseconds (-1 if unknown), dead letters, workers. Last comes 1 if
-- everything that came before is counted, or 0 if the wait is only a lower bound.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local total, pending, lag, known = redis.call('XLEN', KEYS[1]), 0, 0, 1
if total > 0 then
  local group = redis.pcall('XPENDING', KEYS[1], ARGV[1])
  if not group.err then
    pending = group[1]
  end
  local counted, at = string.match(redis.call('GET', KEYS[4]) or '-', '^(%S+) ?(%S*)')
  local since = tonumber(counted) or tonumber(at)
  known = tonumber(counted) and 1 or 0
  lag = since and now - since or -1
  if lag < -1 then -- the clock was set back since
    lag, known = -1, 0
  elseif since then
    lag = math.max(0, lag) * 1000
  end
end
local alive = redis.call('ZCOUNT', KEYS[3], now - believed(tonumber(ARGV[2])), now + 1)
return {total, pending, math.floor(lag), redis.call('XLEN', KEYS[2]), alive, known}
