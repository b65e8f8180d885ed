-- Note a file of the archive. All reports of a stratum are archived, or none: none if some were counted before there was an archive.
local function note(files, tally, name)
  if redis.call('EXISTS', files) == 1 or redis.call('EXISTS', tally) == 0 then
    redis.call('SADD', files, name)
  end
end
