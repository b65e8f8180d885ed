"""Pages of what keys pay for: questions about withheld segments, and what is left of budgets."""
