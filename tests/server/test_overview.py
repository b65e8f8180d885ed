"""What the list of metrics says of each."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest
from registries import metric_toml, registry_toml

from deniable_aggregator.answer.table import cost
from deniable_server.pages.segments import clearest

from .conftest import Served
from .test_rows import day, send
from .test_series import page
from .test_versions import accepted, group

SETTLED = {"min_reports": 50, "early": False, "grace": "30d"}
TOOLS = registry_toml(
    metric_toml("tools", type="set", values=["pen", "brush", "knife"], epsilon=4, description="Which tools"),
    publication=SETTLED,
)


def test_leaders_have_the_interval_of_the_metrics_page(serve):
    """By the intervals of all values together; their estimates alone would look like an interval."""
    server = serve(TOOLS)
    send(server, "tools", [["pen"]] * 300 + [["brush"]] * 300, day(3))
    server.drain(days=40)
    sentence = re.search(r"options: ([\d.]+ to [\d.]+% each)", server.http.get("/m/tools").get_data(as_text=True))
    assert sentence
    assert f"lead, {sentence[1]}" in server.http.get("/").get_data(as_text=True)


SEGMENTS = registry_toml(
    metric_toml("theme", values=["light", "dark", "system"], epsilon=4, segments=["platform", "arm"]),
    metric_toml("wait", estimate="mean", range=[0, 60], unit="s", epsilon=4, segments=["platform"]),
    segments={"platform": ["linux", "macos"], "arm": ["control", "large"]},
    experiments={"arm": {"base": "control", "planned": 0.05}},
    publication=SETTLED,
)


@pytest.fixture
def parted(serve):
    """Serve a metric whose segments differ, and one whose segments do not."""
    server = serve(SEGMENTS)
    place = server.app.registry.metrics["wait"].position(30)
    for platform, dark in (("linux", 200), ("macos", 500)):
        for arm in ("control", "large"):
            send(server, "theme", [1] * dark + [0, 2] * (400 - dark // 2), day(3), segment=f"platform={platform},arm={arm}")
        send(server, "wait", [place] * 600, day(3), segment=f"platform={platform}")
    server.drain(days=40)
    return server


def row_of(server, id_):
    html = unescape(server.http.get("/").get_data(as_text=True))
    return re.search(rf'<h3><a href="/m/{id_}">.*?</li>', html, re.DOTALL)[0]


def test_the_list_says_which_segments_differ(parted):
    """With a link to the page, which opens on that answer; arms are said of above the list, not in it."""
    pattern = r'<a href="([^"]+)">“dark” is more frequent with platform macos than with linux, by ([\d.]+) to ([\d.]+) points</a>'
    address, low, high = re.search(pattern, row_of(parted, "theme")).groups()
    assert float(low) < 37.5 < float(high)
    assert address == "/m/theme?value=dark&base=platform%3Dlinux#segments"
    html = parted.http.get(address).get_data(as_text=True)
    assert "“dark” is more frequent with platform macos (by " in html
    assert "hold for all 3 answers together, in each dimension by itself." in html  # platforms and arms
    assert "platform" not in row_of(parted, "wait")
    assert "arm" not in row_of(parted, "theme")


def test_differences_of_segments_hold_for_the_whole_list(parted):
    """The interval allows for all metrics with segments that the list may name: it is wider than that of the page."""
    row, html = (
        text.partition("dark” is more frequent")[2] for text in (row_of(parted, "theme"), page(parted, "theme?value=dark"))
    )
    pattern = r"by ([\d.]+) to ([\d.]+)"
    (low, high), (lower, upper) = ([float(end) for end in re.search(pattern, each).groups()] for each in (row, html))
    assert low <= lower
    assert high >= upper


def test_segments_are_compared_once_for_a_release(parted, monkeypatch):
    """Not at every request."""
    parted.http.get("/")
    monkeypatch.setattr(clearest, "pairs_of", lambda *_: pytest.fail("compared anew"))
    assert "platform macos" in row_of(parted, "theme")


def test_a_version_without_a_segment_is_listed_beside_one_that_has_it(settings, tmp_path):
    """Until the new version has reports, the row is of the old one, which lacks the new one's segment."""
    folder = tmp_path / "registries"
    folder.mkdir()
    theme = {"values": ["light", "dark"], "epsilon": 4}
    parted = metric_toml("theme", version=2, segments=["platform"], **theme)
    (folder / "0001.toml").write_text(registry_toml(metric_toml("theme", **theme)), "utf-8")
    (folder / "0002.toml").write_text(registry_toml(parted, segments={"platform": ["linux", "macos"]}), "utf-8")
    server = Served(replace(settings, registry=str(folder), dashboard="open"))
    accepted(server, group(server, "theme@1", [0, 1] * 300, 1, segment=""))
    server.drain(days=40)
    assert server.http.get("/").status_code == 200
    server.store._client.close()


def test_segments_that_take_long_to_compare_are_left_out(parted, monkeypatch):
    """As on the page of a metric: a list would have to wait for each of its metrics."""
    monkeypatch.setattr(cost, "MOST_VALUES", 0)
    assert "platform" not in row_of(parted, "theme")


def test_a_page_speaks_of_segments_only_if_two_are_compared(serve):
    """A segment with few reports may differ beyond chance: then the page says so, as the list does."""
    theme = metric_toml("theme", values=["light", "dark", "system"], epsilon=1, segments=["platform"])
    server = serve(registry_toml(theme, segments={"platform": ["linux", "macos"]}, publication=SETTLED))
    send(server, "theme", [0] * 1500, day(4), segment="platform=linux")
    server.drain(days=40)
    assert "by more than chance" not in page(server, "theme")
    send(server, "theme", [0] * 1500, day(3), segment="platform=linux")
    send(server, "theme", [1] * 60, day(3), segment="platform=macos")
    server.drain(days=40)
    assert "with platform macos than with linux" in row_of(server, "theme")
    assert re.search(r"is (more|less) frequent with platform macos \(by \d", page(server, "theme"))
