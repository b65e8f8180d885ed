"""The subcommand ``serve``: its options, which need nothing to be installed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable_aggregator.process import running
from deniable_server.commands.needed import require

if TYPE_CHECKING:
    import argparse

    from deniable.commands.parser import Run


def serve(parser: argparse.ArgumentParser) -> Run:
    """``deniable serve --registry metrics.toml``: store, server and worker, for development and small installations."""
    parser.add_argument("--registry", metavar="FILE", help="default: DENIABLE_REGISTRY, else metrics.toml")
    parser.add_argument("--bind", default="127.0.0.1:8080", metavar="HOST:PORT", help="default 127.0.0.1:8080")
    parser.add_argument("--redis-url", metavar="URL", help="store to use (default: DENIABLE_REDIS_URL, else one of our own)")
    about = f"where keys and a store of our own are kept (default {running.FOLDER})"
    parser.add_argument("--data", type=Path, default=running.FOLDER, metavar="DIR", help=about)
    parser.add_argument("--web-workers", type=int, default=2, metavar="N", help="processes that answer requests (default 2)")
    return _run


def _run(arguments: argparse.Namespace) -> int:
    require()
    served = running.find(arguments.data)
    if served is not None:
        named = "" if arguments.data == running.FOLDER else f" --data {shlex.quote(str(arguments.data))}"
        remedy = f"to look at it: deniable status{named}; to stop it: Ctrl-C where it was started, or kill {served.process}"
        raise ConfigurationError(f"{arguments.data} is served already, at {served.url}/; {remedy}")
    from deniable_server.local.serve import run

    return run(arguments)
