"""A time that was measured elsewhere travels as if it had been measured here: neither its moment nor its period tells it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from types import SimpleNamespace

import pytest
from registries import metric_toml, registry_toml

from deniable.client.recorder import Recorder
from deniable.device.prepared import prepare
from deniable.limits.admission import admit
from deniable.registry import parse

REGISTRY = registry_toml(metric_toml("wait", estimate="mean", range=[0, 3600], unit="s", description="How long it took"))


@pytest.fixture
def recorded():
    """Record a time at a moment; return for how long its report waits, and its period."""
    registry = parse(REGISTRY)
    metric = prepare(registry, admit(registry, None, date(2026, 11, 21)), {})[0]["wait"]
    queued = []
    sender = SimpleNamespace(
        full=None,
        later=lambda wait, report: (wait, report.stratum.period),
        submit=lambda entry, _process: queued.append(entry),
    )
    counts = SimpleNamespace(recorded=0, clipped=0, undeclared=0, drop=lambda _: False, clip=lambda *_, **__: None)
    consent, ledger = SimpleNamespace(ask=lambda: True, agreed=True), SimpleNamespace(spend=lambda *_, **__: None)

    def record(seconds, now):
        recorder = Recorder(
            None, consent, counts, ledger, None, sender, source=None, clock=now.timestamp, refusal=None, strict=True, local=False
        )
        assert recorder.record(metric, seconds, seconds)
        return queued.pop()

    return record


def test_its_report_travels_as_long_after_its_beginning_as_any_other(recorded):
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC)
    assert recorded(600.0, noon) == (3000.0, "2026-11-21")
    assert recorded(10.0, noon) == (3590.0, "2026-11-21")


def test_it_counts_in_the_period_in_which_it_began(recorded):
    after_midnight = datetime(2026, 11, 22, 0, 5, tzinfo=UTC)
    assert recorded(299.0, after_midnight)[1] == "2026-11-22"
    assert recorded(301.0, after_midnight)[1] == "2026-11-21"
