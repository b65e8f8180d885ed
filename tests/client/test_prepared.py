"""A metric that is ready to be recorded: for how long its reports wait, and in which period they count."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from deniable.device.prepared import Prepared, prepare
from deniable.errors import ConfigurationError
from deniable.limits.allowance import reserved
from deniable.limits.caps import Caps
from deniable.registry import parse
from deniable.registry.tables import Budget

HEAD = 'format = 1\napp = "shop"\n'
REST = 'description = "d"\nowner = "o"\n'


def prepared(text):
    registry = parse(f"{HEAD}[metrics.m]\n{text}\n{REST}")
    return prepare(registry, {}, Caps(), Budget(), date(2026, 11, 21))[0]["m"]


def time_of(hours, grace):
    return (
        f'type = "number"\nrange = [0, {hours}]\nunit = "h"\nestimate = "mean"\nepsilon = 1\ngrace = "{grace}"\nperiod = "week"'
    )


def test_a_time_waits_no_longer_than_its_period_takes_reports():
    assert prepared(time_of(3, "6h")).longest == 3 * 3600
    assert prepared(time_of(30, "6h")).longest == 6 * 3600


def test_what_has_run_has_waited():
    """So a report travels as long after the beginning as any other, however long the time was."""
    metric = prepared(time_of(3, "6h"))
    assert metric.wait() == 3 * 3600
    assert metric.wait(elapsed=600.0) == 3 * 3600 - 600


def test_each_hour_is_a_period_of_its_own():
    metric = prepared('type = "boolean"\nepsilon = 0.01\nperiod = "hour"')
    moments = [datetime(2026, 11, 21, hour, 59, tzinfo=UTC) for hour in (13, 14)] + [datetime(2026, 11, 22, 13, tzinfo=UTC)]
    occasions = [metric.occasion(moment) for moment in moments]
    assert [each.stratum.period for each in occasions] == ["2026-11-21T13", "2026-11-21T14", "2026-11-22T13"]
    assert occasions[0].until == datetime(2026, 11, 21, 14, tzinfo=UTC).timestamp()


def test_what_has_ended_takes_no_part_of_the_budget():
    """It does on its last day, and no more on the next."""
    metric = 'type = "boolean"\nepsilon = 1\nperiod = "month"\n' + REST
    registry = parse(f"{HEAD}[metrics.old]\nexpires = 2026-11-21\n{metric}[metrics.new]\n{metric}")
    window = max(each.window for each in reserved(registry, Budget()).values()) / 1e6
    budget = Budget(per_window=window, lifetime=window)
    with pytest.raises(ConfigurationError, match="all metrics together"):
        prepare(registry, {}, Caps(), budget, date(2026, 11, 21))
    prepared, _ = prepare(registry, {}, Caps(), budget, date(2026, 11, 22))
    assert isinstance(prepared["old"], Prepared)
