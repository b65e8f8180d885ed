"""The dashboard: pages and their pictures."""
