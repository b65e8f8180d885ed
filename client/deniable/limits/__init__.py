"""Limits on what a device reveals: its budget, the app's caps, and what shows besides answers."""
