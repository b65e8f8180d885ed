#!lua flags=allow-oom
-- The script runs in a store that is full as well: it makes room, or shuts somebody out. This part stands first.
