"""A question about two things at once: its table, and whether they go together."""

from __future__ import annotations

import re

import pytest
from registries import metric_toml, registry_toml

REGISTRY = registry_toml(
    metric_toml(
        "both",
        type="product",
        factors={"theme": ["light", "dark"], "export": ["no", "yes", "later"]},
        epsilon=3,
        description="Theme and export",
    )
)


def ask(served, people):
    """Let people answer, and read what was estimated."""
    metric = served.app.registry.metrics["both"]
    served.post({"format": 1, "app": "shop", "groups": [served.group("both", [metric.position(answer) for answer in people])]})
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
    results = body["association"]
    assert results["factors"] == {"theme": ["light", "dark"], "export": ["no", "yes", "later"]}
    assert results["degrees"] == 2
    assert (results["p_value"] < 1e-6) is related
    page = served.http.get("/m/both").get_data(as_text=True)
    assert "Do theme and export go together?" in page
    if related:
        assert "They do" in page


def test_the_table_of_two_factors(serve):
    """Each value of a factor has its share, whatever the other is, with its own error: in the answer, and at the table's edge."""
    served = serve(REGISTRY)
    body = ask(served, [("light", "no")] * 1500 + [("dark", "yes")] * 1000 + [("dark", "later")] * 500)
    margins, cells = body["association"]["margins"], [row["estimate"] for row in body["estimates"]]
    mechanism = served.app.highest["both"].mechanism
    assert [row["value"] for row in margins["export"]] == ["no", "yes", "later"]
    for name, sums in (
        ("theme", [sum(cells[:3]), sum(cells[3:])]),
        ("export", [cells[place] + cells[place + 3] for place in range(3)]),
    ):
        for row, total in zip(margins[name], sums, strict=True):
            assert row["estimate"] == pytest.approx(total)
            # Whether a report names one of k of the cells is one coin toss of probability k q + f (p - q).
            k = 6 / len(sums)
            named = k * mechanism.q + total * (mechanism.p - mechanism.q)
            noise = (named * (1 - named) / 3000) ** 0.5 / (mechanism.p - mechanism.q)
            assert row["stderr"] == pytest.approx(float(noise), rel=0.01)
            assert row["interval"] == pytest.approx([total - 1.96 * row["stderr"], total + 1.96 * row["stderr"]], abs=1e-4)
    page = served.http.get("/m/both").get_data(as_text=True)
    table = page.partition('<table class="crossed">')[2].partition("</table>")[0]
    shares = re.findall(r"<b>([^<]+)%</b>", table)
    answer = [*cells[:3], margins["theme"][0], *cells[3:], margins["theme"][1], *margins["export"]]
    answer = [each["estimate"] if isinstance(each, dict) else each for each in answer]
    assert [float(each.replace("\N{MINUS SIGN}", "-")) for each in shares] == pytest.approx([100 * e for e in answer], abs=0.6)
    assert "any export" in table


def test_no_association_without_reports_or_factors(serve, served):
    """Where nothing was counted, or nothing was asked together, there is none."""
    assert serve(REGISTRY).get("/api/v1/metrics/both").get_json()["association"] is None
    assert served.get("/api/v1/metrics/ui.theme").get_json()["association"] is None


def test_no_association_where_the_mechanism_has_none(serve):
    """A mechanism whose reports tell no covariance still has its estimates."""
    served = serve(REGISTRY.replace("epsilon = 3", 'epsilon = 3\nmechanism = "general_hadamard"'))
    body = ask(served, [("light", "no")] * 300)
    assert body["association"] is None
    assert body["estimates"][0]["estimate"] > 0.5
