"""The subcommands of the server, one module each."""
