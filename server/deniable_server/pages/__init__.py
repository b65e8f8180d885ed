"""The dashboard: its pages and charts."""
