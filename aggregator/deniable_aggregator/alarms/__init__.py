"""Made-up reports: bounds that honest reports keep, and the watcher that checks them."""
