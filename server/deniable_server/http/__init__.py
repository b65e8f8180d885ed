"""What holds for every request: its number, its limits, its problems."""
