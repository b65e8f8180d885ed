"""The ``serve`` and ``demo`` subcommands."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from deniable_server import demo as demo_
from deniable_server.settings import Settings
from deniable_server.stack import Stack

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    Run = Callable[[argparse.Namespace], int]

__all__ = ["demo", "serve"]

demo = demo_.command


def serve(parser: argparse.ArgumentParser) -> Run:
    """``deniable serve --registry metrics.toml``: store, server and worker, for development and small installations."""
    parser.add_argument("--registry", help="metrics.toml to serve (default: DENIABLE_REGISTRY)")
    parser.add_argument("--bind", default="127.0.0.1:8080", metavar="HOST:PORT", help="default 127.0.0.1:8080")
    parser.add_argument("--redis-url", help="store to use (default: DENIABLE_REDIS_URL, else one of our own)")
    parser.add_argument("--data", type=Path, default=Path(".deniable"), help="where a store of our own keeps its data")
    parser.add_argument("--web-workers", type=int, default=2, metavar="N", help="processes that answer requests (default 2)")

    def run(arguments: argparse.Namespace) -> int:
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        settings = Settings.from_environment()
        settings = replace(
            settings,
            registry=arguments.registry or settings.registry,
            redis_url=arguments.redis_url or settings.redis_url,
        )
        apps = list(settings.registries())
        # Without keys in the environment nobody could send or read, so draw some and say them.
        made = not settings.ingest_keys and not settings.read_keys
        if made:
            settings = replace(settings, ingest_keys=_keys(apps, "pk"), read_keys=_keys(apps, "rk"))
        with Stack(settings, bind=arguments.bind, web_workers=arguments.web_workers, directory=arguments.data) as stack:
            print(f"Dashboard: {stack.url}/")
            if made:
                for app, sending, reading in zip(
                    apps, settings.ingest_keys.split(","), settings.read_keys.split(","), strict=True
                ):
                    print(f"DSN:       http://{sending.partition(':')[2]}@{arguments.bind}/{app}")
                    print(f"Read key:  {reading.partition(':')[2]}")
                print("Keys are new at each start; set DENIABLE_INGEST_KEYS and DENIABLE_READ_KEYS (app:key,...) to keep them.")
            print("Ctrl-C stops everything.", flush=True)
            stack.wait()
        return 0

    return run


def _keys(apps: list[str], prefix: str) -> str:
    return ",".join(f"{app}:{prefix}_{token_urlsafe(24)}" for app in apps)
