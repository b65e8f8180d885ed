-- Put one string that is staged in its place, if it is all there.
-- KEYS: where it is staged, its place.  ARGV: its length.  Returns 1 if it was put there, else 0.
if not complete(KEYS[1], ARGV[1]) then
  return 0
end
place(KEYS[1], KEYS[2])
return 1
