"""Pools of hash functions, and sketches of many rows."""
