"""Figures of withheld cells over HTTP: sums, means and most frequent values, near the truth, paid for and logged."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from fillings import once
from registries import metric_toml, registry_toml

from deniable.commands.entry import main
from deniable.registry import period
from deniable_aggregator.audit.entry import intact_entry
from deniable_query import Query, QueryError

from .conftest import READ
from .test_asking import listening
from .test_openapi import check
from .test_rows import send

TODAY = period.of(datetime.now(UTC), "day")
LATER = period.of(datetime.now(UTC) + timedelta(days=9), "day")
REGISTRY = registry_toml(
    metric_toml("spent", range=[10, 30], unit="EUR", estimate="mean", epsilon=8, segments=["platform"]),
    metric_toml("size", range=[1, 1000], scale="log", unit="ms", estimate="mean", epsilon=8, segments=["platform"]),
    metric_toml("kept", range=[0, 10], unit="EUR", estimate="mean", epsilon=4, epsilon_permanent=8.0, segments=["platform"]),
    metric_toml("theme", values=["light", "dark", "system"], epsilon=8, segments=["platform"]),
    segments={"platform": ["linux", "macos", "beos"]},
    publication={"min_reports": 400, "early": False},
    analysts={"epsilon": 20, "per_key": 20},
)
ANSWERS = {"macos": (15.0, 300), "beos": (30.0, 200)}


@pytest.fixture
def shop(serve, store_url):
    """Count reports of three platforms, two of which are withheld, and close the period."""
    served = serve(REGISTRY)

    def fill():
        for name, (number, n) in ({"linux": (12.0, 1200)} | ANSWERS).items():
            send(served, "spent", [number] * n, TODAY, segment=f"platform={name}")
            send(served, "size", [number] * n, TODAY, segment=f"platform={name}")
            ends = served.group("kept", [0, 1] * (n // 2), period=TODAY, segment=f"platform={name}")  # of 5, as devices round it
            assert served.post({"format": 1, "app": "shop", "groups": [ends]}).status_code == 202
            send(served, "theme", [{"macos": 1, "beos": 2}.get(name, 0)] * n, TODAY, segment=f"platform={name}")
        served.drain(days=5)

    once("figures", store_url, served.store._client, fill)
    return served


def ask(shop, metric, figure, *names, epsilon=4.0, **body):
    cells = [f"platform={name}" for name in names or ("macos",)]
    question = {"period": TODAY, "epsilon": epsilon, "cells": cells, "figure": figure} | body
    answer = shop.http.post(f"/api/v1/metrics/{metric}/withheld", json=question, headers={"Authorization": f"Bearer {READ}"})
    return answer.status_code, answer.get_json()


@pytest.mark.parametrize("name", ANSWERS)
def test_a_sum_and_a_mean_are_near_the_truth(shop, name):
    """Both of a withheld cell lie in their intervals, which are narrow, beside the number of reports, in the number's unit."""
    number, n = ANSWERS[name]
    status, mean = ask(shop, "spent", "mean", name)
    assert (status, mean["figure"], mean["unit"], mean["cells"]) == (200, "mean", "EUR", [f"platform={name}"])
    low, high = mean["interval"]
    assert low - 1 <= number <= high + 1  # an interval misses once in twenty times, and then by little
    assert high - low < 4
    assert abs(mean["estimate"] - number) < 3
    low, high = mean["count_interval"]
    assert low - 10 <= n <= high + 10
    total = ask(shop, "spent", "sum", name)[1]
    assert abs(total["estimate"] - n * number) < 600
    assert total["interval"][0] < total["estimate"] < total["interval"][1]
    check("Answered", mean)
    check("Answered", total)


def test_a_number_with_kept_responses_has_a_mean(shop):
    """Devices that keep at which point they round a number show its mean as well."""
    status, answer = ask(shop, "kept", "mean")
    assert status == 200
    assert answer["interval"][0] - 1 <= 5 <= answer["interval"][1] + 1


def test_the_most_frequent_value_is_named(shop):
    """In a cell where all people answer one value it is named, and hardly any other can be ahead of it."""
    for name, value in (("macos", "dark"), ("beos", "system")):
        answer = ask(shop, "theme", "value", name)[1]
        assert answer["value"] == value
        assert 0 < answer["behind"] < 0.5
        check("Answered", answer)


def test_the_same_figure_again_is_the_same_answer(shop):
    """Asked again it costs nothing; another figure of the same cell is another question."""
    first = ask(shop, "spent", "mean", epsilon=0.5)[1]
    again = ask(shop, "spent", "mean", epsilon=0.5)[1]
    assert (first["spent"], again["spent"]) == (0.5, 0)
    assert {**first, "spent": 0} == again
    total = ask(shop, "spent", "sum", epsilon=0.5)[1]
    assert total["spent"] == 0.5
    assert ask(shop, "spent", "count", epsilon=0.5)[1]["left"] == pytest.approx(20 - 3 * 0.5)


@pytest.mark.parametrize(
    ("metric", "figure", "names", "code", "words"),
    [
        ("spent", "median", ("macos",), "figure", "figure: write one of count, sum, mean, value"),
        ("spent", "means", ("macos",), "figure", "did you mean 'mean'?"),
        ("spent", "mean", ("macos", "beos"), "figure", "mean is for one cell"),
        ("size", "mean", ("macos",), "figure", "its scale is logarithmic"),
        ("theme", "sum", ("macos",), "figure", "of theme ask for count or value"),
        ("spent", "value", ("macos",), "figure", "of spent ask for count"),
        ("spent", "mean", ("linux",), "published", "has it for free"),
    ],
)
def test_a_figure_that_there_is_not_is_refused_for_nothing(shop, metric, figure, names, code, words):
    """It is said what to ask for instead, and nothing is paid."""
    status, answer = ask(shop, metric, figure, *names)
    assert (status in (400, 409), answer["code"], words in answer["detail"]) == (True, code, True), answer
    assert shop.get("/api/v1/budgets").get_json()["months"] == []


def test_whether_a_figure_is_refused_does_not_depend_on_what_is_withheld(shop, monkeypatch):
    """Exact sums are read only for an answer that is paid for."""
    from deniable_server.api.answers import questions

    def never(*_):
        raise AssertionError

    monkeypatch.setattr(questions._Exact, "of", never)
    assert ask(shop, "spent", "mean", "linux")[0] == 409
    assert ask(shop, "size", "mean")[0] == 400
    assert ask(shop, "spent", "mean", period=LATER)[0] == 404
    assert ask(shop, "spent", "mean")[0] == 500


@pytest.fixture
def asking(shop, monkeypatch):
    """Ask a server of this machine by `deniable query`; return the status and what is printed."""
    with listening(shop.flask) as url:
        monkeypatch.setenv("DENIABLE_URL", url)
        monkeypatch.setenv("DENIABLE_READ_KEY", READ)
        yield url


def test_from_python(asking):
    """`Query` asks of each metric named, and which of several segments has most; and says what is left."""
    query = Query(asking, READ)
    answers = query.metric("spent", "theme").withheld(TODAY, "platform=beos", epsilon=1)
    assert {name: answer["figure"] for name, answer in answers.items()} == {"spent": "count", "theme": "count"}
    mean = query.metric("spent").withheld(TODAY, "platform=beos", epsilon=4, figure="mean")["spent"]
    assert mean["says"].startswith("The mean is ")
    most = query.metric("theme").withheld(TODAY, "platform=beos", "platform=macos", epsilon=4)["theme"]
    assert most["most"] == "platform=macos"
    assert query.budgets()["months"][0]["left"] == 10
    with pytest.raises(QueryError) as refused:
        query.metric("theme").withheld(TODAY, "platform=beos", epsilon=10.5)
    assert refused.value.code == "budget_spent"


@pytest.mark.usefixtures("asking")
def test_from_a_shell(capsys):
    """`deniable query --withheld` prints the answer in words, what it cost, and what it guarantees; or JSON."""
    words = ["query", "spent", "--withheld", TODAY, "--where", "platform=beos", "--epsilon", "4"]
    assert main([*words, "--figure", "sum"]) == 0
    says, cost, guarantee = capsys.readouterr().out.splitlines()
    assert says.startswith("The sum is ")
    assert "EUR" in says
    assert cost == "This answer cost 4 nats; 16 are left of this key's budget for the month."
    assert guarantee.startswith("Beyond the exact releases")
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figure"] == "count"


@pytest.mark.usefixtures("asking")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--withheld", TODAY, "--epsilon", "1"], "--where NAME=VALUE"),
        (["--figure", "mean"], "a question about a withheld segment has --withheld PERIOD"),
        (["--withheld", TODAY, "--where", "platform=beos", "--epsilon", "1", "--by", "time"], "--by is for what is published"),
        (["--withheld", TODAY, "--where", "platform=linux", "--epsilon", "1"], "is published"),
        (["--withheld", TODAY, "--where", "platform=beos", "--epsilon", "1", "--figure", "mode"], "figure: write one of"),
    ],
)
def test_what_a_shell_is_refused(capsys, options, words):
    """It says what such a question has, or what the server says."""
    assert main(["query", "spent", *options]) == 2
    assert words in capsys.readouterr().err


def test_a_figure_is_logged(shop):
    """The audit log has which figure was asked for, and never the answer."""
    ask(shop, "spent", "mean", epsilon=0.5)
    entry = intact_entry(shop.store._client.lrange("{shop}:audit", -1, -1)[0])
    details = {name: entry.details[name] for name in ("question", "metric", "among", "figure", "epsilon", "spent")}
    assert details == {
        "question": "withheld",
        "metric": "spent",
        "among": "platform=macos",
        "figure": "mean",
        "epsilon": "0.5",
        "spent": "0.5",
    }
