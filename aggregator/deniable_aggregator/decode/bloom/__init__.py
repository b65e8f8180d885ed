"""Bloom filters: regression of the counts of bits on candidates."""
