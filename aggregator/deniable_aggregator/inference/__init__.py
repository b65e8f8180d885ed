"""Inference: what changed over time, and whether two groups differ."""
