"""How long pages and the query API take with a long history, and for how long a worker stops counting to look through it.

    python benchmarks/pages.py                       # 200 metrics, 365 days, 11 cells: 803,000 releases
    python benchmarks/pages.py --metrics 1 --segments 57   # a metric with many segments

Each figure is the median of several requests of this process, with the slowest, and the least of its processor's time, which
others who use the machine change least. The store is another process. Pages are also given as a multiple of a page that reads
nothing (`/healthz`), in the same run.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deniable.declared import Declared
from deniable.registry import published
from deniable.wire.report import Stratum
from deniable_aggregator.alarms.watcher import Watch
from deniable_aggregator.deletion.retention import Retention
from deniable_aggregator.publish.publisher import Publisher
from deniable_aggregator.publish.release import Release
from deniable_aggregator.store import Store, connect, schema
from deniable_aggregator.store.server import embedded
from deniable_aggregator.store.sums import tallies
from deniable_server import create_app
from deniable_server.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable.registry import Registry

KEY = "rk_bench_12345678"
REPORTS = 1000  # of each cell of a day


def registry(metrics: int, platforms: list[str]) -> str:
    """Declare so many metrics alike."""
    budget = "[budget]\nper_month = 1000000\nlifetime = 1000000\n"
    head = f'format = 1\napp = "bench"\n{budget}[retention]\nreleases = 1095\n[segments]\nplatform = {platforms}\n'
    return head + "".join(
        f'[metrics."m{number:03d}"]\ntype = "categorical"\nvalues = ["a", "b", "c", "d", "e"]\nepsilon = 1.0\n'
        'segments = ["platform"]\ndescription = "d"\nowner = "o"\n'
        for number in range(metrics)
    )


def fill(store: Store, loaded: Registry, days: int, platforms: list[str]) -> None:
    """Publish a history, as the publisher would have."""
    chance = np.random.default_rng(1)
    last = datetime.now(UTC).date() - timedelta(days=5)
    names = [(last - timedelta(days=day)).isoformat() for day in reversed(range(days))]
    hour = int(time.time()) // 3600 * 3600
    for metric in loaded.metrics.values():
        definition = Declared.of(metric).definition
        pipeline = store._client.pipeline(transaction=False)
        index: dict[str, str] = {}
        for name in names:
            parts = chance.multinomial(REPORTS, [0.3, 0.25, 0.2, 0.15, 0.1], size=len(platforms))
            cells = {"": parts.sum(0), **{f"platform={name}": part for name, part in zip(platforms, parts, strict=True)}}
            for cell, counts in cells.items():
                stratum = tallies.name(Stratum(*definition, name, cell))
                index[stratum] = Release(1, hour, closed=True, first=name, n=int(counts.sum())).note()
                pipeline.set(store.releases.key(stratum), counts.astype(">i8").tobytes())
        pipeline.hset(schema.RELEASES.of(store.app, metric.id), mapping=index)
        field = tallies.name(definition)
        answer = {"n": days * len(platforms) * REPORTS, "updated": hour, "last": names[-1], "closed": names[-1]}
        pipeline.hset(store.published.key, mapping={f"{field}|{member}": value for member, value in answer.items()})
        pipeline.execute()
        store.metrics.add([metric.id])


def timed(call: Callable[[], object], times: int) -> tuple[float, float, float]:
    """Return the median and the slowest of some calls, and the least of the processor's time, in milliseconds."""
    took, worked = [], []
    for _ in range(times):
        began, working = time.perf_counter(), time.process_time()
        call()
        took.append(1000 * (time.perf_counter() - began))
        worked.append(1000 * (time.process_time() - working))
    return statistics.median(took), max(took), min(worked)


def main() -> None:
    """Fill a store, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--metrics", type=int, default=200)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--segments", type=int, default=10)
    parser.add_argument("--times", type=int, default=7)
    arguments = parser.parse_args()
    platforms = [f"p{number}" for number in range(arguments.segments)]
    with tempfile.TemporaryDirectory() as folder, embedded.open_store() as server:
        url = server.url
        path = Path(folder) / "metrics.toml"
        path.write_text(registry(arguments.metrics, platforms), "utf-8")
        loaded = published.load(path)
        store = Store(connect(url, timeout=60), "bench")
        fill(store, loaded, arguments.days, platforms)
        print(f"{arguments.metrics} metrics, {arguments.days} days, {1 + len(platforms)} cells")
        settings = Settings(redis_url=url, registry=str(path), read_keys=f"bench:{KEY}")
        api, pages = (create_app(replace(settings, dashboard=how)).test_client() for how in ("key", "open"))
        own = {"Authorization": f"Bearer {KEY}"}
        base, _, _ = timed(lambda: api.get("/healthz"), arguments.times)
        for path_ in (
            "/api/v1/metrics",
            "/api/v1/metrics/m000",
            "/api/v1/metrics/m000?segment=platform=p1",
            "/api/v1/metrics/m000/series",
            "/api/v1/metrics/m000/compare?a=platform=p1&b=platform=p2",
            "/",
            "/?q=m1",
            "/m/m000",
            "/m/m000?segment=platform=p1",
            "/m/m000/compare",
            "/m/m000/compare?a=platform=p1&b=platform=p2",
            "/readyz",
        ):
            http = api if path_.startswith("/api") else pages

            def ask(path_: str = path_, http: object = http) -> None:
                answer = http.get(path_, headers=own)  # type: ignore[attr-defined]
                assert answer.status_code in (200, 503), answer.get_data()

            median, slowest, worked = timed(ask, arguments.times)
            times = f"{median:9.1f} ms, slowest {slowest:9.1f}, worked {worked:7.1f}"
            print(f"  {path_:58} {times}; {median / base:7.0f} times /healthz")
        publisher = Publisher(store, loaded)
        retention = Retention(store, loaded, publisher)
        for name, chore in (("publisher", publisher.run), ("watch", Watch(store, loaded).run), ("retention", retention.run)):
            began = time.perf_counter()
            _, slowest, _ = timed(chore, arguments.metrics + 1)
            print(f"  {name:58} {slowest:9.1f} ms at most for one look, {time.perf_counter() - began:.1f} s for all")


if __name__ == "__main__":
    main()
