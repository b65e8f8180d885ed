"""Limits on what a device reveals: the allowances of its metrics, the app's caps, and its exposure."""
