"""Limits on what a device reveals: the allowances of its metrics, the app's caps, its exposure, and which metrics are on."""
