"""The wire format: the layout of a payload, reports and batches."""
