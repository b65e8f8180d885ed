"""Deletion: by time, and by command."""
