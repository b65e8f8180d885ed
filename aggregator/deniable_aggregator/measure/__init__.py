"""Measurements: what the reports of a metric say, with its uncertainty, in the words in which it is answered and shown."""
