"""The subcommand that asks a server."""
