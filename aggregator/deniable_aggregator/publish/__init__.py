"""Publication: what is released, when, and of which segments."""
