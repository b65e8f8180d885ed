-- Move one staged string to its place, if it is complete.
-- KEYS: its staged key, its place.  ARGV: its length.  Returns 1 if it was moved, else 0.
if not complete(KEYS[1], ARGV[1]) then
  return 0
end
place(KEYS[1], KEYS[2])
return 1
