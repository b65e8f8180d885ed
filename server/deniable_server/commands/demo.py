"""The subcommand ``demo``."""

from __future__ import annotations

from deniable_server.local.demo import command as demo

__all__ = ["demo"]
