"""The commands of the relay."""
