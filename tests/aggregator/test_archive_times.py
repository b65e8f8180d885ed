"""When files of the archive are mixed for good: not while batches wait, nor while a commit is being added."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from deniable.registry import Metric
from deniable.wire.report import Stratum
from deniable_aggregator.archive.folder import ArchiveFile
from deniable_aggregator.deletion import archived_files
from deniable_aggregator.deletion.archived_files import ArchivedFiles

DAY, NOW = 86_400, 1_800_000_000.0


@pytest.fixture
def files():
    """Look after an archive of a metric whose grace is a day, of which a batch has waited for an hour."""
    return ArchivedFiles(
        SimpleNamespace(erased=SimpleNamespace(all=dict)),
        SimpleNamespace(definitions=[Metric("m", "boolean", (False, True), "1", grace="1d")]),
        SimpleNamespace(drained=lambda now: now - 3600),
        None,
        faults=SimpleNamespace(alone=lambda *_: nullcontext()),
    )


def test_a_period_is_closed_once_its_batches_are_counted(files, monkeypatch):
    seen = []
    folder = SimpleNamespace(find=lambda: [ArchiveFile("path", "m", 1, "name", 1, 0.0)])
    monkeypatch.setattr(archived_files, "folders_of", lambda *_: [(None, folder)])
    monkeypatch.setattr(archived_files, "_sweep", lambda *_: None)
    monkeypatch.setattr(files, "_mixed", lambda *of: seen.append(of[-1]) or iter(()))
    files.tidy(NOW)
    assert seen == [NOW - 3600 - DAY]


@pytest.mark.parametrize(("before", "after", "read"), [(None, 3, False), (3, None, False), (3, 4, False), (3, 3, True)])
def test_names_and_sums_are_read_while_no_commit_is_added(files, before, after, read):
    """Otherwise they would not belong together, and a sound archive would seem to differ."""
    order, opened = iter([before, after]), []
    partition = SimpleNamespace(
        name="shop",
        staging=SimpleNamespace(settled=lambda _: next(order)),
        archived=SimpleNamespace(read=lambda _: (["name"], np.zeros(1, np.int64))),
    )

    def open_(*_):
        opened.append(1)
        raise StopIteration

    folder = SimpleNamespace(read=open_)
    with pytest.raises(StopIteration) if read else nullcontext():
        files._mix(partition, folder, Stratum("m", 1, "f", "2026-11-21", ""))
    assert bool(opened) == read
