"""The subcommands: each module is the front of one."""
