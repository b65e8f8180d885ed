-- Return some fields of a hash.
-- KEYS: the hash. ARGV: the fields.
return redis.call('HMGET', KEYS[1], unpack(ARGV))
