"""Segments side by side: `compared.py` tests them, `table.py` is what the page of a metric shows."""
