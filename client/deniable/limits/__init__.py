"""What a device may give away at most: parts of the budget, the app's caps, what shows besides answers."""
