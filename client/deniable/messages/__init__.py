"""What people read of the SDK and of the commands: why something is missing, warnings that are said once, and counts in words."""
