"""The subcommands that need the store and no web server: each module is the front of one."""
