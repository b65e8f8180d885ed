"""Uploads: from a request of a device to the stream of a partition."""
