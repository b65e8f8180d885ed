"""Sums in the store: tallies of counted reports, and the steps that add to them."""
