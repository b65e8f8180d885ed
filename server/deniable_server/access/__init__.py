"""Who may do what, and how often: keys, addresses, limits, sessions."""
