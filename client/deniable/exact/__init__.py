"""Exact arithmetic: epsilon as a ratio of whole numbers, finite fields, public hash families."""
