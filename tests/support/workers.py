"""Workers that run beside a test, and uploads for them."""

from __future__ import annotations

import threading
from contextlib import contextmanager

from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator.store import Upload
from deniable_aggregator.store.uploads import batch
from deniable_aggregator.store.uploads.batch import Group

INDEX = Layout(1, 5, "index")
ONE = Stratum("one", 1, "f" * 16, "2026-11-21", "")


def send(store, key, reports=b"\1"):
    assert (
        store.append(Upload(batch.encode([Group(ONE, INDEX, reports)]), key=str(key), remember=b"-", cap=999, ttl=60)).outcome
        == "appended"
    )


@contextmanager
def running(worker):
    """Run a worker; end it in the end, and raise what it raised."""
    stop, raised = threading.Event(), []

    def run():
        try:
            worker.run(stop)
        except BaseException as error:  # noqa: BLE001 - raised again
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()
    if raised:
        raise raised[0]
