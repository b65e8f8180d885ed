"""A forked child and the reports that wait in its parent."""

from __future__ import annotations

import pytest

from deniable import Budget, Caps, Client, SenderSettings
from deniable.registry import parse
from deniable.testing import StubServer, make_due

REGISTRY = """
format = 1
app = "shop"
[metrics.took]
type = "number"
range = [0, 0.6]
unit = "s"
estimate = "mean"
epsilon = 1
description = "d"
owner = "o"
[metrics.quiet]
type = "boolean"
epsilon = 1
delay = "12h"
description = "d"
owner = "o"
[metrics.plain]
type = "boolean"
epsilon = 1
description = "d"
owner = "o"
"""


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_forked_child_sends_nothing_of_its_parent(on_disk, tmp_path, in_child):
    """Neither what waits in memory nor a block; with a directory both may send what is on disk, once."""
    options = {
        "caps": Caps(budget=Budget(per_month=None, lifetime=None)),
        "settings": SenderSettings(flush_interval=0.02),
        "state": tmp_path / "device" if on_disk else None,
    }
    registry = parse(REGISTRY)
    with StubServer(registry) as server, Client(dsn=server.dsn, registry=registry, consent=True, **options) as client:
        client.record("quiet", value=True)
        client.flush(60)

        def child() -> bytes:
            client.record("plain", value=True)
            client.flush(60)
            return b"done"

        with client.timed("took"):
            assert in_child(child) == b"done"
        make_due()
        assert client.flush(60)
        assert client.stats()["waiting"] == 0
        assert sorted(report.metric for report in server.reports) == ["plain", "quiet", "took"]
