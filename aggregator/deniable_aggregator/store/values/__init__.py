"""Small values in the store: collections, limits, secrets and sessions."""
