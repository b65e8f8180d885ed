"""Common answers that nobody listed, found level by level."""
