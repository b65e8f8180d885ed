"""The audit log: a chain of entries in the store, and the files that old ones go to."""
