"""The subcommand ``worker``."""

from __future__ import annotations

import logging
import os
import signal
import sys
from threading import Event, Timer
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable.layout import Layout
from deniable_aggregator import options, tally, weights
from deniable_aggregator.erasure import Erasure
from deniable_aggregator.worker import Worker, WorkerSettings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from types import FrameType

    from deniable_aggregator.store import Store
    from deniable_aggregator.watch import Watch

__all__ = ["worker"]

_FORCED = 1
_LARGEST_COMMIT = 10_000
_LONGEST_CLAIM = 3600
_STOP_SECONDS = 22.0  # less than the 25 s that are promised and the 30 s that Kubernetes grants


def worker(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """``deniable worker --redis-url URL --app NAME...``.

    Exit status: 0 when all that was in hand is counted, 1 when a second signal cut it short, 2 for a wrong configuration, 3 when
    the store could not be used at the end, so that entries may be left for another worker.
    """
    options.add(parser)
    about = (
        "metrics.toml of the apps, to look for made-up reports; several are joined by : (default: DENIABLE_REGISTRY, or no looks)"
    )
    parser.add_argument("--registry", default=os.environ.get("DENIABLE_REGISTRY"), metavar="FILE", help=about)
    parser.add_argument("--burst", action="store_true", help="stop when the stream is empty")
    parser.add_argument("--batch", type=int, default=100, help="batches counted in one commit (default 100)")

    parser.add_argument(
        "--max-deliveries",
        type=int,
        default=5,
        metavar="N",
        help="put aside what so many workers did not get counted (default 5)",
    )
    parser.add_argument(
        "--claim-after",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="take over what another worker has had in hand for so long (default 60)",
    )

    def run(arguments: argparse.Namespace) -> int:
        stores = options.stores(arguments)
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
        if not 0 < arguments.claim_after <= _LONGEST_CLAIM:
            raise ConfigurationError(
                f"--claim-after is above 0 and at most {_LONGEST_CLAIM} seconds; got {arguments.claim_after:g}"
            )
        if not 0 < arguments.batch <= _LARGEST_COMMIT:
            raise ConfigurationError(f"--batch is from 1 to {_LARGEST_COMMIT}; got {arguments.batch}")
        settings = WorkerSettings(
            batch=arguments.batch,
            min_idle_ms=round(1000 * arguments.claim_after),
            claim_every=min(30.0, arguments.claim_after / 2),
            max_deliveries=arguments.max_deliveries,
        )
        if arguments.max_deliveries < 1:
            raise ConfigurationError(f"--max-deliveries is 1 or more; got {arguments.max_deliveries}")
        counter = Worker(stores, settings, watches=[Erasure(stores), *_watches(stores, arguments.registry)])
        stop = _stop_on_signals()
        for layout in (Layout(1, 2, "index"), Layout(1, 8, "bits")):
            tally.count(layout, b"\0")  # compiles the kernels now, if need be, and not while reports wait
        weights.count(layout, b"\0")
        counter.run(stop, burst=arguments.burst)
        print(f"counted {counter.counted} reports, put aside {counter.buried} batches", file=sys.stderr)
        return options.STORE_STATUS if counter.cut_off else 0

    return run


def _watches(stores: list[Store], paths: str | None) -> list[Watch]:
    """Make a watch for each app whose registry is given."""
    if not paths:
        return []
    from deniable import registry  # noqa: PLC0415 - a worker that only counts needs neither registries nor decoders
    from deniable_aggregator.watch import Watch  # noqa: PLC0415

    loaded = {each.app: each for each in map(registry.load, filter(None, paths.split(os.pathsep)))}
    return [Watch(store, loaded[store.app]) for store in stores if store.app in loaded]


def _stop_on_signals() -> Event:
    """Stop gently on the first SIGTERM or SIGINT, and within the time that supervisors allow; at once on the second."""
    stop = Event()

    def give_up() -> None:
        print(f"not done after {_STOP_SECONDS:g} s; what is in hand is left to another worker", file=sys.stderr, flush=True)
        os._exit(options.STORE_STATUS)

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if stop.is_set():
            os._exit(_FORCED)
        stop.set()
        last = Timer(_STOP_SECONDS, give_up)
        last.daemon = True
        last.start()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop
