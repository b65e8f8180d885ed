"""How many records a web app makes in a second for its people: the first of each, and those that come again in the period.

python benchmarks/people.py [--people 2000] [--redis URL]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import deniable
from deniable.client.people import People
from deniable.registry import parse

_METRIC = """
[metrics."{id}"]
type = "categorical"
values = ["light", "dark", "system"]
epsilon = 1.0
period = "month"
description = "A question of the benchmark"
owner = "o@shop.example"
"""
_REGISTRY = 'format = 1\napp = "shop"\n' + _METRIC.format(id="plain") + _METRIC.format(id="kept") + "epsilon_permanent = 2.0\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=2000)
    parser.add_argument("--redis", help="address of a Redis to use in place of a file")
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        store: object = Path(folder)
        if arguments.redis:
            import redis

            store = redis.Redis.from_url(arguments.redis)
        people = People(
            "https://key@t.example/shop",
            registry=parse(_REGISTRY),
            key="0" * 32,
            store=store,
            state=None,
            consent=lambda _: True,
            settings=deniable.SenderSettings(queue_size=1_000_000, flush_at=1_000_000, flush_interval=3600),
            post=lambda *_: (202, {}, None),
        )
        for metric in ("plain", "kept"):
            for case in ("first", "again"):
                begun, used = time.perf_counter(), time.process_time()
                queued = sum(people.person(number).record(metric, "dark") for number in range(arguments.people))
                took = time.perf_counter() - begun
                processor = (time.process_time() - used) / arguments.people * 1e3
                rate = f"{arguments.people / took:8,.0f} a second, {processor:.2f} ms of processor"
                print(f"{metric:6} {case:6} {rate}, {queued:,} reports")
        size = sum(path.stat().st_size for path in Path(folder).rglob("*"))
        print(f"{size / arguments.people:,.0f} bytes a person on disk")
        people.close(0)


if __name__ == "__main__":
    main()
