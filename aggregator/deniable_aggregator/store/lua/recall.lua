-- Return the record of an upload.
-- KEYS: the beginning of the names of upload records.  ARGV: the secret, the upload's bucket and field, days for which it is
-- remembered.
-- Returns '' and the record ('' for none); or 'secret' and the store's secret, if that is another one.
local secret = redis.call('GET', KEYS[1] .. 'secret')
if secret and secret ~= ARGV[1] then
  return {'secret', secret}
end
return {'', seen(1, ARGV[2], ARGV[3], math.floor(redis.call('TIME')[1] / 86400), ARGV[4]) or ''}
