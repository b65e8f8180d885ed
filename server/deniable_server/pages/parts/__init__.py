"""Parts of pages: what several pages show, or one page beside its numbers."""
