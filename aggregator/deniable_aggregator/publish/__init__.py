"""Publication: what is released, when, and for which segments."""
