"""A recount by processes: of this machine, of a cluster, and by ones that die."""

from __future__ import annotations

import os

import pytest

from deniable.errors import ConfigurationError
from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator import tally

pytest.importorskip("pyarrow")

from deniable_aggregator.archive import executor, recount
from deniable_aggregator.archive.folder import COMMITS, Folder

WIDE = Layout(64, 12, "bits")
PLUGIN = Stratum("ui.plugin", 2, "f" * 16, "2026-11-21", "platform=linux")
STRATA = (PLUGIN, PLUGIN._replace(segment=""))


@pytest.fixture
def archived(tmp_path):
    """Write three files for each of two strata; return what counts them with an executor, and what that must give."""
    folder = Folder(str(tmp_path / "archive"), "a" * 32)
    payloads = [b"".join(WIDE.pack(row, row * seed) for row in range(64)) for seed in (1, 7, 50)]
    lots = {stratum: [[folder.write(stratum, WIDE, each, COMMITS)] for each in payloads] for stratum in STRATA}

    def count(pool):
        done = []
        tallies = recount.count(folder, lots, pool, lambda: done.append(1))
        assert len(done) == 6
        return tallies

    expected = recount.Counted(tally.count(WIDE, b"".join(payloads)), {}, missing=False)
    return count, dict.fromkeys(STRATA, expected)


def test_a_recount_equals_the_tally(archived):
    """Cell by cell, in other processes."""
    count, expected = archived
    with executor.start() as pool:
        assert count(pool) == expected


def die(*_):
    os._exit(1)


def test_an_executor_that_dies_is_named(archived, monkeypatch):
    """It is no recount that differs, whose status is 1."""
    count, _ = archived
    monkeypatch.setattr(recount, "count_files", die)
    with executor.start() as pool, pytest.raises(ConfigurationError, match=r"--executor: .* \(BrokenProcessPool\)"):
        count(pool)


def test_a_recount_on_dask(archived):
    """A cluster of Dask counts the same."""
    distributed = pytest.importorskip("distributed")
    count, expected = archived
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        executor.start(cluster.scheduler_address.replace("tcp://", "dask://")) as pool,
    ):
        assert count(pool) == expected
