"""Sets: how many people chose an option, or two together."""
