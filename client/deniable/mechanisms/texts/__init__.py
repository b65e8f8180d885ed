"""Mechanisms for texts and keys: with candidates, or to be discovered."""
