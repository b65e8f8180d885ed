"""Counting, decoding and storing of randomised reports."""
