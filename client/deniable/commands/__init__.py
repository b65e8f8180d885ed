"""The subcommands that need nothing but the SDK, one each."""
