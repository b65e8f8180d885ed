"""Made-up reports: the bounds that honest ones keep, and the watcher that looks for others."""
