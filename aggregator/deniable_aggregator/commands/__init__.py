"""The subcommands that need the store and no web server, one module each."""
