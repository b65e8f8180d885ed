"""The subcommand ``worker``."""

from __future__ import annotations

import logging
import os
import signal
import sys
from threading import Event
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable.layout import Layout
from deniable_aggregator import tally
from deniable_aggregator.store import Store, connect
from deniable_aggregator.worker import Worker, WorkerSettings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from types import FrameType

__all__ = ["worker"]


def worker(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """``deniable worker --redis-url URL --app NAME...``."""
    parser.add_argument("--redis-url", default=os.environ.get("DENIABLE_REDIS_URL"), help="default: DENIABLE_REDIS_URL")
    parser.add_argument("--app", action="append", metavar="NAME", help="app to count for; may be repeated")
    parser.add_argument("--burst", action="store_true", help="stop when the stream is empty")
    parser.add_argument("--batch", type=int, default=100, help="batches counted in one commit (default 100)")

    def run(arguments: argparse.Namespace) -> int:
        if not arguments.redis_url:
            raise ConfigurationError("a worker needs --redis-url; `deniable serve` starts a store and a worker of its own")
        if not arguments.app:
            raise ConfigurationError("a worker needs --app, the name in the registry; it may be repeated")
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
        client = connect(arguments.redis_url)
        counter = Worker([Store(client, app) for app in arguments.app], WorkerSettings(batch=arguments.batch))
        stop = _stop_on_signals()
        for layout in (Layout(1, 2, "index"), Layout(1, 8, "bits")):
            tally.count(layout, b"\0")  # compiles the kernels now, if need be, and not while reports wait
        counter.run(stop, burst=arguments.burst)
        print(f"counted {counter.counted} reports, put aside {counter.buried} batches", file=sys.stderr)
        return 0

    return run


def _stop_on_signals() -> Event:
    """Stop gently on the first SIGTERM or SIGINT, at once on the second."""
    stop = Event()

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if stop.is_set():
            os._exit(1)
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop
