"""Questions of analysts about withheld numbers: the noise in their answers, and the budget that pays for it."""
