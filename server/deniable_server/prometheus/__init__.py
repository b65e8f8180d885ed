"""Metrics for Prometheus: counters of this server, and gauges read from the store."""
