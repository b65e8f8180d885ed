"""Simulated people of an app: what they answer, what their devices report, and how close the estimates come."""
