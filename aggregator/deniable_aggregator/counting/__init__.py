"""The worker: from batches in the stream to sums in the store, each counted once."""
