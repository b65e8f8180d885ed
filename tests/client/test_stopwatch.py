"""Stopwatches: the time of a block or a function is recorded in the unit of its metric, and nothing else changes."""

from __future__ import annotations

import asyncio
import threading
from inspect import iscoroutinefunction, signature

import pytest
from registries import metric_toml, registry_toml

import deniable
from deniable import Budget, Caps, Client, ParameterError, stopwatch
from deniable.registry import parse
from deniable.testing import Capture

UNITS = {"us": 2.5e6, "ms": 2500, "s": 2.5, "min": 2.5 / 60, "h": 2.5 / 3600}


def registry(most):
    keys = {"range": [0, 10_000_000], "estimate": "mean", "period": "month", "per_period": most}
    return parse(registry_toml(*(metric_toml(f"in.{unit}", unit=unit, **keys) for unit in [*UNITS, "bytes"])))


REGISTRY = registry(100)
FREE = Caps(budget=Budget(per_month=None, lifetime=None))


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock by one that moves by hand."""
    now = [100.0]
    monkeypatch.setattr(stopwatch, "perf_counter", lambda: now[0])
    return now


@pytest.fixture
def capture():
    """Capture what is recorded."""
    with Capture(registry(1)) as opened:
        yield opened


def client_of(**options):
    defaults = {"dsn": "https://k@t.example/shop", "registry": REGISTRY, "consent": True, "caps": FREE, "state": None}
    return Client(post=lambda *_: (202, {}, None), **(defaults | options))


@pytest.mark.parametrize(("unit", "number"), UNITS.items())
def test_a_block(clock, capture, unit, number):
    """The seconds of a block are recorded in the unit of the metric, by the front door, a client and a handle."""
    client = client_of(registry=registry(1))
    for make in (deniable.timed, client.timed, lambda id_: deniable.metric(id_).timed(), lambda id_: client.metric(id_).timed()):
        with make(f"in.{unit}"):
            clock[0] += 2.5
        assert capture.values(f"in.{unit}") == [pytest.approx(number)]
        capture.clear()


def test_a_function(clock, capture):
    """A decorated function is the same function, and each of its calls is timed, also within itself."""

    @deniable.timed("in.s")
    def climb(steps: int, *, high: bool = False) -> int:
        """Go up."""
        clock[0] += 1
        return climb(steps - 1, high=high) + 1 if steps else 10

    assert (climb.__name__, climb.__doc__, [*signature(climb).parameters]) == ("climb", "Go up.", ["steps", "high"])
    assert climb(2, high=True) == 12
    assert capture.values("in.s") == [1, 2, 3]


def test_a_coroutine(clock, capture):
    """A decorated coroutine function still is one; two that run at once have their own times."""

    @deniable.timed("in.s")
    async def wait(seconds, before, after):
        await before.wait() if before else None
        clock[0] += seconds
        after.set()
        return seconds

    async def both():
        first, second = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(wait(5, first, second), wait(2, None, first))

    assert iscoroutinefunction(wait)
    assert asyncio.run(both()) == [5, 2]
    assert sorted(capture.values("in.s")) == [2, 7]


def test_threads(clock, capture):
    """Calls of one decorated function in many threads have their own times."""
    turn = [threading.Event() for _ in range(5)]

    @deniable.timed("in.s")
    def work(number):
        turn[number].wait(60)
        clock[0] += 1
        if number:
            turn[number - 1].set()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    turn[4].set()
    for thread in threads:
        thread.join(60)
    assert sorted(capture.values("in.s")) == [1, 2, 3, 4, 5]


def test_an_error_of_the_block_goes_on(clock, capture):
    """The time is recorded, and the error is the one that was raised; so for functions, coroutines and cancelled ones."""
    error = ValueError("theirs")

    def fail():
        clock[0] += 1
        raise error

    async def wait():
        fail()

    async def cancelled():
        task = asyncio.ensure_future(deniable.timed("in.s")(asyncio.Event.wait)(asyncio.Event()))
        await asyncio.sleep(0)
        clock[0] += 1
        task.cancel()
        await task

    for call in (deniable.timed("in.s")(fail), lambda: asyncio.run(deniable.timed("in.s")(wait)())):
        with pytest.raises(ValueError, match="theirs") as raised:
            call()
        assert raised.value is error
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    with pytest.raises(ValueError, match="theirs"), deniable.timed("in.s"):
        fail()
    assert capture.values("in.s") == [1, 1, 1, 1]


def test_another_unit(clock):
    """A metric that does not count time is dropped with a reason; strict, it is an error, but never in place of the block's."""
    client = client_of()
    with client.timed("in.bytes"), client.timed("in.s"), client.timed("nosuch"):
        clock[0] += 1
    stats = client.stats()
    assert (stats["recorded"], stats["dropped"]) == (1, {"unit": 1, "unknown_metric": 1})
    strict = client_of(strict=True)
    with pytest.raises(
        ParameterError, match=r"in\.bytes counts no time, since its unit is bytes: declare one of us, ms, s, min, h, or "
    ):
        strict.timed("in.bytes").__enter__().__exit__(None, None, None)
    with pytest.raises(KeyError, match="theirs"), strict.timed("in.bytes"):
        raise KeyError("theirs")


def test_nothing_reaches_the_app(clock):
    """Whatever is timed: before `init`, off, or with a metric that is not even a text."""
    with deniable.timed("in.s"):
        pass
    off, on = client_of(dsn=None), client_of()
    for client in (off, on):
        for metric in ("in.s", None, [], 3):
            with client.timed(metric):
                clock[0] += 1
    assert on.stats()["recorded"] == 1
    assert off.stats()["dropped"]["disabled"] >= 1


def test_numbers_beyond_the_range_are_counted_here(clock):
    """Numbers, infinities and times that are clamped are in `clipped`; the ends, and what is no number, are not."""
    client = client_of()
    for answer in (0, 10_000_000, 1, -0.5, float("inf"), 10_000_001, None, "x", float("nan"), True):
        assert client.record("in.us", answer)
    with client.timed("in.us"):
        clock[0] += 11
    assert client.stats()["undeclared"] == 4
    client.close()  # the report of a block is made later, or at the end
    assert client.stats()["clipped"] == 4
