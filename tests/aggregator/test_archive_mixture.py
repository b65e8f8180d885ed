"""Files that are mixed for good have the very reports that were counted, and not only as many."""

from __future__ import annotations

import pytest

from deniable.wire.layout import Layout
from deniable.wire.report import Stratum
from deniable_aggregator import tally
from deniable_aggregator.archive import mixture
from deniable_aggregator.archive.errors import RecountDiffersError
from deniable_aggregator.archive.folder import Folder

LAYOUT, STRATUM = Layout(1, 8, "index"), Stratum("m", 1, "f", "2026-11-21", "")


def test_as_many_other_reports_are_not_mixed(tmp_path):
    folder = Folder(str(tmp_path))
    names = [folder.write(STRATUM, LAYOUT, b"\1\2"), folder.write(STRATUM, LAYOUT, b"\3")]
    with pytest.raises(RecountDiffersError):
        mixture.write(folder, STRATUM, names, tally.count(LAYOUT, b"\1\2\4"))
    assert len(folder.find()) == 2
    (mixed,) = mixture.write(folder, STRATUM, names, tally.count(LAYOUT, b"\3\2\1"))
    with folder.read(STRATUM, mixed) as (_, payloads):
        assert b"".join(payloads) == b"\1\2\3"
