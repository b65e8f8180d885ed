"""Uploads in the store: batches from the moment they arrive until they are counted."""
