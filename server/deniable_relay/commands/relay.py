"""The subcommand ``relay``: its options, and the process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run


def relay(parser: argparse.ArgumentParser) -> Run:
    """``deniable relay --registry metrics.toml --server https://telemetry.example.org``: mix sealed reports, and forward them."""
    parser.add_argument(
        "--registry", metavar="FILE", help="metrics.toml of the app (default: DENIABLE_RELAY_REGISTRY, metrics.toml)"
    )
    parser.add_argument("--server", metavar="URL", help="server to forward to (default: DENIABLE_RELAY_SERVER)")
    parser.add_argument("--data", metavar="DIR", help="folder of what waits (default: DENIABLE_RELAY_DATA, relay)")
    parser.add_argument("--bind", default="127.0.0.1:8090", metavar="HOST:PORT", help="default 127.0.0.1:8090")
    parser.epilog = (
        "Secrets are variables only: DENIABLE_RELAY_INGEST_KEY (of devices) and DENIABLE_RELAY_SERVER_KEY (the relay's own)."
    )

    def run(arguments: argparse.Namespace) -> int:
        from deniable_relay.process import serve
        from deniable_relay.settings import Settings

        options = {"registry": arguments.registry, "server": arguments.server, "data": arguments.data}
        settings = Settings.of(options)
        print(f"Relay: http://{arguments.bind}, forwards to {settings.server}. Ctrl-C stops it.", file=sys.stderr, flush=True)
        serve(settings, arguments.bind)
        return 0

    return run
