"""A question about two things at once: its table, and whether they go together."""

from __future__ import annotations

import pytest

REGISTRY = """
format = 1
app = "shop"
[metrics.both]
type = "product"
factors = { theme = ["light", "dark"], export = ["no", "yes", "later"] }
epsilon = 3
description = "Theme and export"
owner = "web@shop.example"
"""


def ask(served, people):
    """Let people answer, and read what was estimated."""
    metric = served.app.registry.metrics["both"]
    served.post({"format": 1, "groups": [served.group("both", [metric.position(answer) for answer in people])]})
    served.drain(days=5)
    return served.get("/api/v1/metrics/both").get_json()


@pytest.mark.parametrize("related", [True, False])
def test_association(serve, related):
    """Things that go together are told from things that do not, in the answer and on the page."""
    served = serve(REGISTRY)
    if related:
        people = [("light", "no")] * 1500 + [("dark", "yes")] * 1000 + [("dark", "later")] * 500
    else:
        people = [(theme, export) for theme in ("light", "dark") for export in ("no", "yes", "later")] * 500
    body = ask(served, people)
    assert [row["value"] for row in body["estimates"]][:2] == [["light", "no"], ["light", "yes"]]
    assert body["estimates"][4]["label"] == "dark, yes"
    found = body["association"]
    assert found["factors"] == {"theme": ["light", "dark"], "export": ["no", "yes", "later"]}
    assert found["degrees"] == 2
    assert (found["p_value"] < 1e-6) is related
    page = served.http.get("/m/both").get_data(as_text=True)
    assert "Do theme and export go together?" in page
    if related:
        assert "They do" in page


def test_no_association_without_reports_or_factors(serve, served):
    """Where nothing was counted, or nothing was asked together, there is none."""
    assert serve(REGISTRY).get("/api/v1/metrics/both").get_json()["association"] is None
    assert served.get("/api/v1/metrics/ui.theme").get_json()["association"] is None


def test_no_association_where_the_mechanism_has_none(serve):
    """A mechanism whose reports tell no covariance still has its estimates."""
    served = serve(REGISTRY.replace("epsilon = 3", 'epsilon = 3\nmechanism = "general_hadamard"'))
    body = ask(served, [("light", "no")] * 300)
    assert body["association"] is None
    assert body["estimates"][0]["frequency"] > 0.5
