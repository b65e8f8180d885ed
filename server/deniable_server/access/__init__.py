"""Access: keys, addresses, limits, sessions."""
