"""Whether a client in any language does what docs/reference/wire says: its vectors, asked of a test adapter over JSON lines."""
