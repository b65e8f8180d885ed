"""A whole service on one machine: `deniable serve` and `deniable demo`."""
