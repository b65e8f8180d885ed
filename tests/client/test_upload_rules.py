"""When the reports of a group are taken: from the first to the last moment, and not one more."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from registries import metric_toml, registry_toml

from deniable.declared import Declared
from deniable.registry import parse
from deniable.upload_rules import MAX_KEY, Refused, check_key, inflated, place
from deniable.wire.report import Stratum

REGISTRY = registry_toml(
    metric_toml("dark", grace="2d", segments=["platform"], expires=date(2026, 11, 21), description="Whether it is dark"),
    segments={"platform": ["linux", "macos"]},
)
TICK, SKEW = timedelta(microseconds=1), timedelta(minutes=5)
BEGINS = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.fixture
def placed():
    """Place reports of a period, as it is at a moment."""
    registry = parse(REGISTRY)
    declared = Declared.of(registry.metrics["dark"])

    def place_at(now, name="2026-11-20"):
        group = Stratum("dark", 1, declared.fingerprint, name, "platform=linux")
        return place(registry, lambda _: [declared], group, now, SKEW)

    return place_at


def test_the_first_moment_is_that_of_a_clock_that_is_ahead(placed):
    first = BEGINS - SKEW
    assert placed(first).opens == first
    with pytest.raises(Refused) as refused:
        placed(first - TICK)
    assert refused.value.code == "period_not_open"


def test_the_last_moment_is_the_end_of_the_grace():
    registry = parse(REGISTRY.replace("expires = 2026-11-21\n", ""))
    declared = Declared.of(registry.metrics["dark"])
    group = Stratum("dark", 1, declared.fingerprint, "2026-11-20", "platform=linux")
    last = BEGINS + timedelta(days=3)
    assert place(registry, lambda _: [declared], group, last, SKEW).closes == last
    with pytest.raises(Refused) as refused:
        place(registry, lambda _: [declared], group, last + TICK, SKEW)
    assert refused.value.code == "period_closed"


def test_nothing_is_taken_after_the_last_day_of_collection(placed):
    """What a server keeps of a group ends with that day, too, though the grace goes on."""
    last = datetime(2026, 11, 22, tzinfo=UTC) - TICK
    assert placed(last).closes == last
    with pytest.raises(Refused) as refused:
        placed(last + TICK)
    assert refused.value.code == "metric_expired"


def test_a_key_may_have_so_many_characters():
    check_key("k" * MAX_KEY)
    for key in ("", "k" * (MAX_KEY + 1), "a\n"):
        with pytest.raises(Refused) as refused:
            check_key(key)
        assert refused.value.code == "idempotency_key"


def test_a_body_may_have_so_many_bytes():
    import gzip

    wire = gzip.compress(b"x" * 100)
    assert inflated(wire, "application/json", "gzip", 100) == b"x" * 100
    for most, bad, code in ((99, wire, "inflated_too_large"), (100, wire + wire, "gzip"), (100, wire[:-1], "gzip")):
        with pytest.raises(Refused) as refused:
            inflated(bad, "application/json", "gzip", most)
        assert refused.value.code == code
