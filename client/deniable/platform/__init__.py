"""Whatever differs between Windows and other systems: files that are open, locks, folders, forks."""
