"""What many tests fill their store with is made once: the store of each later one gets back what was left in the first."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from seeded import seeded

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

_contents: dict[tuple[str, str, date], list[tuple[bytes, int, bytes]]] = {}


def once(name: str, store: str, client: redis.Redis, fill: Callable[[], object]) -> None:
    """Fill an emptied store, or put back what the first filling of this name left in it today. The name seeds its draws."""
    filling = name, store, datetime.now(UTC).date()
    if filling not in _contents:
        with seeded(name):  # whichever test is the first
            fill()
        keys = list(client.scan_iter(count=1000))
        with client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.pttl(key).dump(key)
            answers = pipeline.execute()
        _contents[filling] = [
            (key, max(lifetime, 0), content) for key, lifetime, content in zip(keys, answers[::2], answers[1::2], strict=True)
        ]
        return
    with client.pipeline(transaction=False) as pipeline:  # one way there and back, and not one for each key
        for key, lifetime, content in _contents[filling]:
            pipeline.restore(key, lifetime, content, replace=True)
        pipeline.execute()
