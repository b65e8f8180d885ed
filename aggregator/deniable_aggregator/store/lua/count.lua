-- Count a request that does nothing else in the store.
-- KEYS, ARGV and the answer are those of the function `limited`.
return limited(1, 1, 0, #KEYS - 1)
