-- Read at one moment which files a stratum has, and its tally.
-- KEYS: names of its files, its tally.
return {redis.call('SMEMBERS', KEYS[1]), redis.call('GET', KEYS[2]) or ''}
