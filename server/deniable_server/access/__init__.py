"""Access: keys and their roles, addresses, and limits."""
