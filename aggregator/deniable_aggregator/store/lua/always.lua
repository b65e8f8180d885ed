#!lua flags=allow-oom
-- The script runs in a store that is full as well: it makes room, shuts somebody out, or says that a process lives. This part stands
-- first.
