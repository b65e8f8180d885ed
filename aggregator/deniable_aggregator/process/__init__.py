"""What all our processes share: logs, environment variables, plots."""
