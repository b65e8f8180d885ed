-- Append those reports of a pool that were not appended before.
-- KEYS: stream, the beginning of the names of digests, the last hour.
-- ARGV: the entry up to its payloads, the payloads, the size of one, cap of the backlog, when the digests may go; then a digest
-- for each payload, as a decimal number.  Returns the outcome, and how many reports are new.
if redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[4]) then
  return {'full', 0}
end
local size, new = tonumber(ARGV[3]), {}
for i = 6, #ARGV do
  -- Small sets of integers have eight bytes for each, so digests are spread over a thousand sets, by their last digits.
  local set = KEYS[2] .. string.sub(ARGV[i], -3)
  if redis.call('SADD', set, ARGV[i]) == 1 then
    local first = (i - 6) * size
    new[#new + 1] = string.sub(ARGV[2], first + 1, first + size)
    if redis.call('SCARD', set) == 1 then
      redis.call('EXPIREAT', set, ARGV[5])
    end
  end
end
if #new == 0 then
  return {'appended', 0}
end
local now = tonumber(redis.call('TIME')[1])
local bytes = #new * size
local length = string.char(math.floor(bytes / 16777216), math.floor(bytes / 65536) % 256, math.floor(bytes / 256) % 256, bytes % 256)
enter(KEYS[1], now, {'d', ARGV[1] .. '\198' .. length .. table.concat(new)}) -- 198: bytes with a length of four bytes, in MessagePack
redis.call('HSET', KEYS[3], 'last', string.format('%.0f', now - now % 3600))
return {'appended', #new}
