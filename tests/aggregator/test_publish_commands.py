"""`deniable publish`: what may be published is, and the words say what was."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from deniable import mechanisms, registry
from deniable.commands.entry import main
from deniable.declared import fingerprint
from deniable.registry import period
from deniable.wire.report import Stratum
from deniable_aggregator.store import Store

NOW = 1795260480
FIVE = np.array([5, 0, 0])


@pytest.fixture
def counted(real_redis, registry_file):
    """Count a hundred reports of a day that is closed, in an app that is no trial."""
    registry_file.write_text(registry_file.read_text("utf-8").replace("trial = true", ""), "utf-8")
    metric = registry.load(registry_file).metrics["ui.theme"]
    mechanism = mechanisms.of(metric)
    past = period.of(datetime.now(UTC) - timedelta(days=9), "day")
    stratum = Stratum("ui.theme", 1, fingerprint(metric, mechanism.canonical), past, "")
    store = Store(real_redis, "shop")
    store.partitions[0].commit("test", [], {stratum: np.array([60, 30, 10])}, NOW)
    return stratum


def test_publishing(counted, real_redis, store_url, registry_file, capsys):
    """What is published is named, once, and then how much waits and for what."""
    command = ["publish", "--redis-url", store_url, "--registry", str(registry_file), "--app", "shop"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[-1]) == (f"shop: ui.theme@1, {counted.period}", "1 published")
    Store(real_redis, "shop").partitions[0].commit(
        "test", [], {counted._replace(period=period.of(datetime.now(UTC), "day")): FIVE}, NOW
    )
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("shop: ui.theme@1: reports that wait: 5; needed: 1 report; the next release is due 20")
    assert lines[0].endswith(" UTC, or a step earlier: when as many more have come, and a quarter of those published")
    assert lines[1].startswith("shop: export.used@1: reports that wait: 0;")
    assert lines[-1] == "0 published"


@pytest.mark.usefixtures("real_redis")
def test_a_trial_waits_for_nothing(store_url, registry_file, capsys):
    """In a trial everything is published as it is counted, so nothing is said to wait."""
    assert main(["publish", "--redis-url", store_url, "--registry", str(registry_file), "--app", "shop"]) == 0
    assert "needed" not in (output := capsys.readouterr().out)
    assert output.splitlines()[0] == "shop: a trial: all reports are published as soon as they are counted"


def test_what_it_needs(store_url, registry_file, capsys, monkeypatch):
    """Without a registry, or for an app that has none, the words say what is missing."""
    monkeypatch.delenv("DENIABLE_REGISTRY", raising=False)
    assert main(["publish", "--redis-url", store_url, "--app", "shop"]) == 2
    assert "this needs --registry" in capsys.readouterr().err
    assert main(["publish", "--redis-url", store_url, "--app", "other", "--registry", str(registry_file)]) == 2
    assert "other" in capsys.readouterr().err
    assert main(["publish", "--redis-url", "redis://127.0.0.1:9", "--app", "shop", "--registry", str(registry_file)]) == 3
