"""The servers of the store: how they are reached, what they can do, and what they promise."""
