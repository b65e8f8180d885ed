"""How heavy pages are of metrics as apps have them after months: many values, many segments, every day."""

from __future__ import annotations

import csv
import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from io import StringIO

import numpy as np
import pytest
from registries import metric_toml, registry_toml

from deniable.declared import Declared
from deniable.wire.report import Stratum
from deniable_aggregator.publish.release import Release
from deniable_aggregator.store import schema
from deniable_aggregator.store.sums import tallies
from deniable_server.pages.segments.table import SegmentRow, SegmentTable

MOST = 60_000
"""Bytes of a page."""
SHOWN = 20
"""Values of a dimension before the others are folded."""
SEGMENTS = {"country": [f"land{number:02}" for number in range(50)], "device": ["phone", "tablet", "desk", "tv"]}
CELLS = [f"{name}={word}" for name, words in SEGMENTS.items() for word in words]
DAYS = 120
REGISTRY = registry_toml(
    metric_toml("feature", values=[f"feature {number}" for number in range(64)], epsilon=4.0, segments=list(SEGMENTS)),
    metric_toml("export.used", type="boolean", epsilon=2.0, segments=list(SEGMENTS)),
    segments=SEGMENTS,
    publication={"min_reports": 1},
)


def fill(served):
    """Publish a history of each metric, in all reports and in each value of a segment, as the publisher would have."""
    chance = np.random.default_rng(4)
    last = datetime.now(UTC).date() - timedelta(days=5)
    names = [(last - timedelta(days=day)).isoformat() for day in reversed(range(DAYS))]
    hour = int(datetime.now(UTC).timestamp()) // 3600 * 3600
    for id_, metric in served.app.registry.metrics.items():
        definition = Declared.of(metric).definition
        width = served.mechanism(id_).layout.width
        shares = np.sort(chance.dirichlet(np.ones(width)))[::-1]
        pipeline = served.store._client.pipeline(transaction=False)
        index = {}
        for name in names:
            for cell in ("", *CELLS):
                counts = chance.multinomial(100_000 if cell == "" else 2_000, shares)
                stratum = tallies.name(Stratum(*definition, name, cell))
                index[stratum] = Release(1, hour, closed=True, first=name, n=int(counts.sum())).note()
                pipeline.set(served.store.releases.key(stratum), counts.astype(">i8").tobytes())
        pipeline.hset(schema.RELEASES.of(served.store.app, id_), mapping=index)
        answer = {"n": DAYS * 100_000, "updated": hour, "last": names[-1], "closed": names[-1]}
        field = tallies.name(definition)
        pipeline.hset(served.store.published.key, mapping={f"{field}|{member}": value for member, value in answer.items()})
        pipeline.execute()
    served.store.metrics.add(list(served.app.registry.metrics))


@pytest.mark.slow("thousands of releases are put into a store, and read")
def test_pages_are_light_after_months(serve):
    """Whatever an app asks, by how many segments, and for how long. What is folded is one link away, and in the file."""
    shop = serve(REGISTRY)
    fill(shop)
    paths = ("/", "/m/feature", "/m/feature?by=day", "/m/export.used", "/m/export.used?by=day", "/m/feature/compare")
    pages = {path: shop.http.get(path).get_data(as_text=True) for path in paths}
    sizes = {path: len(text.encode()) for path, text in pages.items()}
    assert {path: size for path, size in sizes.items() if size >= MOST} == {}
    for id_ in ("feature", "export.used"):
        table = pages[f"/m/{id_}"].partition('id="segments"')[2].partition("</table>")[0]
        assert table.count('<tr class="sub') == SHOWN + len(SEGMENTS["device"])
        folded = re.search(r'<td colspan="6">30 more segments with fewer reports, [^<]*: <a href="([^"]+)">show all</a>', table)
        every = shop.http.get(unescape(folded[1])).get_data(as_text=True).partition('id="segments"')[2].partition("</table>")[0]
        assert every.count('<tr class="sub') == len(CELLS)
        assert "more segments" not in every
        lines = csv.DictReader(StringIO(shop.http.get(f"/m/{id_}/segments.csv").get_data(as_text=True)))
        cells = Counter(f"{line['segment']}={line['name']}" for line in lines)
        assert cells == dict.fromkeys(CELLS, max(cells.values()))  # each answer that is tested has a line


def test_the_base_is_never_folded():
    """Whichever segment is the base, its row is there; and of what is folded the page says how much differs."""
    row = SegmentRow("a", "x=a", "alike", "", "", "", "", 0, (0, 0), (False, False), numbers=("published", 5))
    rows = [replace(row, name=str(number)) for number in range(25)]
    rows[23] = replace(rows[23], state="base")
    rows[24] = replace(rows[24], state="less")
    table = SegmentTable("", "", (), None, (), row, (("x", tuple(rows)),), "")
    (group,) = table.listed(everything=False)
    assert [each.name for each in group.rows] == [*map(str, range(SHOWN)), "23"]
    assert group.folded == "4 more segments with fewer reports, 1 of them differs"
    (group,) = table.listed(everything=True)
    assert (len(group.rows), group.folded) == (25, "")
