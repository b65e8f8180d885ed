"""The order of the list: it is in the address, and stays while one searches and turns pages."""

from __future__ import annotations

import csv
import io
import re

import pytest
from registries import metric_toml, registry_toml

from deniable_server.pages import list_page

REGISTRY = registry_toml(
    metric_toml("plum", owner="zoe@shop.example"),
    metric_toml("apple", owner="ann@shop.example"),
    metric_toml("melon", owner="ann@shop.example"),
    publication={"min_reports": 1, "trial": True},
)


@pytest.fixture
def shop(serve):
    served = serve(REGISTRY)
    for id_, n in (("plum", 20), ("apple", 5), ("melon", 50)):
        assert served.post({"format": 1, "app": "shop", "groups": [served.group(id_, [0, 1] * n)]}).status_code == 202
    served.drain()
    return served


def listed(shop, **question):
    html = shop.http.get("/", query_string=question).get_data(as_text=True)
    return re.findall(r'<h3><a href="/m/([a-z]+)">', html)


@pytest.mark.parametrize(
    ("sort", "ids"),
    [
        ("", ["plum", "apple", "melon"]),
        ("name", ["apple", "melon", "plum"]),
        ("owner", ["apple", "melon", "plum"]),
        ("reports", ["melon", "plum", "apple"]),
    ],
)
def test_metrics_stand_in_the_order_asked_for(shop, sort, ids):
    """Here all are in one group; the file has the same order."""
    assert listed(shop, sort=sort) == ids
    text = shop.http.get("/overview.csv", query_string={"sort": sort}).get_data(as_text=True)
    assert [row["metric"] for row in csv.DictReader(io.StringIO(text))] == ids


def test_links_repeat_the_order(shop, monkeypatch):
    """Those of states, pages and files, and the form; not those of metrics."""
    monkeypatch.setattr(list_page, "MOST_ROWS", 2)
    html = shop.http.get("/?sort=name&q=shop.example").get_data(as_text=True)
    assert re.search(r'href="/\?(?=[^"]*page=2)[^"]*sort=name', html)
    assert re.search(r'href="/overview.csv\?[^"]*sort=name', html)
    assert re.search(r'href="/\?(?=[^"]*state=single)[^"]*sort=name', html)
    assert '<option value="name" selected>by name</option>' in html
    assert listed(shop, sort="name") == ["apple", "melon"]
    assert listed(shop, sort="name", page=2) == ["plum"]
    assert html.count('name="sort"') == 1
