"""Modules that all our processes share: logs, environment variables, plots."""
