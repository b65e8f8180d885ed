"""Numbers for Prometheus: counted here, looked up in the store, summed over processes."""
