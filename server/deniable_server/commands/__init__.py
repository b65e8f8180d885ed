"""The subcommands of the server: each module is the front of one."""
