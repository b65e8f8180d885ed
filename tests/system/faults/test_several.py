"""Servers of a store die under load, or its keys move: with `replicated`, what was answered is counted, and counted once.

`just chaos --kind cluster` does more of the same.
"""

from __future__ import annotations

import pytest

pytest.importorskip("flask")

pytestmark = pytest.mark.campaign
KILLS = {"cluster": 4, "sentinels": 2}
LONGEST = 60.0  # seconds without an answer: a replica is promoted in two
PAUSED = 20.0  # seconds at most


@pytest.fixture(
    scope="module",
    params=[("cluster", 1), pytest.param(("cluster", 3), marks=pytest.mark.nightly), ("sentinels", 1)],
    ids=["cluster", "divided", "sentinels"],
)
def stage(request):
    """Start the service on three primaries with two replicas each, with an app on one or on all of them, or by Sentinels."""
    from chaos import Stage
    from processes import servers

    kind, partitions = request.param
    with Stage(next(iter(servers().values())), kind=kind, partitions=partitions) as stage:
        yield stage


def check(run, longest=LONGEST):
    """Check that nothing was lost, nothing counted twice, and nobody waited for long."""
    assert run.faults == []
    assert run.accepted == run.counted
    assert run.unary == run.weighed
    assert run.weighed.total() > 0
    assert max(seconds for each in run.silences.values() for seconds in each) < longest


def test_primaries_die(stage):
    """One machine after another is killed under load, each time the one that has the app."""
    run = stage.run(4000, troubles={"kill store": 1}, least=KILLS[stage.redis.kind], rate=0.0)
    check(run)
    assert run.done["store kills"] >= KILLS[stage.redis.kind]


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("what", ["pause store", "restart store"])
def test_primaries_are_back_soon(stage, what, times):
    """As if nothing had been: one that was paused takes uploads until it hears that another has its place."""
    run = stage.run(4003, troubles={what: 1}, least=times, rate=0.0)
    check(run, LONGEST + PAUSED)
    assert run.done["pauses"] + run.done["restarts"] >= times


def test_everything_happens(stage):
    """Beside that, workers and servers are killed and stopped, connections are cut off and held back, and slots are moved."""
    from chaos import TROUBLES

    if stage.redis.kind != "cluster":
        pytest.skip("Sentinels take 10 s to have a server follow that was away; the test above has them")
    run = stage.run(4001, troubles=TROUBLES | {"move": 3}, least=12)
    check(run)
    assert run.done["store kills"] > 0
    assert run.done["moves"] > 0


def test_slots_move(stage):
    """An app goes round the primaries of a cluster again and again."""
    if stage.redis.kind != "cluster":
        pytest.skip("one primary has no slots")
    run = stage.run(4002, troubles={"move": 1}, least=8, rate=0.0)
    check(run)
    assert run.done["moves"] >= 8
