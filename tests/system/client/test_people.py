"""Web workers share the people of an app: as processes of their own, and as forks of one that has recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from subprocess import PIPE

import pytest
from registries import metric_toml, registry_toml
from senders import Fake

from deniable.client.people import People
from deniable.registry import parse

pytest.importorskip("redis", reason="the SDK alone comes without it")

REGISTRY = registry_toml(
    metric_toml("theme", values=["light", "dark"], period="month"),
    metric_toml("kept", values=["light", "dark"], epsilon_permanent=2.0, period="month"),
    metric_toml("visits", period="month", per_period=5),
)
WORKER = """
import sys
import deniable
folder, registry, url, as_text = sys.argv[1:]
store = folder
if url:
    import redis
    store = redis.Redis.from_url(url, decode_responses=bool(as_text))
people = deniable.people(
    "http://key@127.0.0.1:9/shop", registry=registry, key="0" * 32, store=store, state=folder, consent=lambda _: True,
)
print("ready", flush=True)
sys.stdin.readline()
queued = [people.person(n).record(metric, True) for n in range(10) for metric in ("theme", "kept", "visits", "visits")]
print(sum(queued), people.stats()["dropped"].get("state", 0))
people.close(0)
"""


@pytest.mark.parametrize(("store", "as_text"), [("file", ""), ("redis", ""), ("redis", "yes")])
def test_processes_share_people(tmp_path, real_redis, store_url, store, as_text):
    """However many workers record for the same people at once, each person makes exactly the reports that are allowed."""
    assert real_redis.dbsize() == 0
    registry = tmp_path / "metrics.toml"
    registry.write_text(REGISTRY, "utf-8")
    url = store_url if store == "redis" else ""
    command = [sys.executable, "-c", WORKER, str(tmp_path / "store"), str(registry), url, as_text]
    workers = [subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) for _ in range(4)]
    assert [worker.stdout.readline() for worker in workers] == ["ready\n"] * 4
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    ends = [worker.communicate(timeout=300) for worker in workers]
    queued, state = zip(*(map(int, out.split()) for out, _ in ends), strict=True)
    if not sum(state):  # a disk that takes longer than a worker waits makes fewer reports, never more
        assert sum(queued) == 10 * (1 + 1 + 5)
    assert sum(queued) <= 10 * (1 + 1 + 5)
    assert real_redis.dbsize() == (10 if url else 0)  # nobody is kept by another worker


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_of_a_worker_records(tmp_path, in_child):
    """A child neither uses nor closes the connection of its parent, which has recorded and goes on."""
    people = People(
        "https://key@t.example/shop", registry=parse(REGISTRY), key="0" * 32, store=tmp_path, consent=lambda _: True, post=Fake()
    )
    assert people.person(1).record("theme", "dark")

    def child() -> bytes:
        queued = [people.person(number).record("theme", "dark") for number in (1, 2)]
        return f"{queued} {os.getpid()}".encode()

    assert in_child(child).startswith(b"[False, True]")
    assert not people.person(2).record("theme", "dark")
    assert people.person(3).record("theme", "dark")
    people.close(60)
