"""Answers to analysts: metrics, rows, questions about withheld cells, and live numbers."""
