"""Questions of analysts about withheld numbers: central noise, and the budget that pays for it."""
