"""The site's pages hold: their code runs, their registries are sound, their tables say what the code says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from dataclasses import MISSING, fields, replace
from pathlib import Path

import pytest
import requests
from test_serve import serving

from deniable import mechanisms, registry
from deniable.client import Client
from deniable.lint import lint
from deniable.registry import tables
from deniable.registry.answers import types
from deniable.registry.metric import Metric
from deniable.registry.tables import Caps
from deniable.testing import StubServer

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
BUILT = {"commands.md", "variables.md", "accuracy.md", "reasons.md", "columns.md"}
FILES = [path for path in DOCS.rglob("*.md") if path.parent.name not in {"decisions", "mechanisms"} and path.name not in BUILT]
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text("utf-8") for path in FILES}
HEAD = 'format = 1\napp = "shop"\n'
SEGMENTS = '[segments]\nplatform = ["linux", "macos"]\n'
METRIC = '[metrics."any"]\ntype = "boolean"\nepsilon = 1.0\ndescription = "Any"\nowner = "core@shop.example"\n'
FREE = Caps(budget=tables.Budget(per_month=None, lifetime=None))
DECLARE, TUTORIAL = PAGES["reference/metrics-toml.md"], PAGES["tutorials/first-trend.md"]


def blocks(language):
    """Return the blocks of all pages, but for those that a marker hands to a test of their own, and tests that one copies."""
    pairs = [
        (page, block)
        for page, text in PAGES.items()
        for marked, block in re.findall(rf"(<!-- .* -->\n)?```{language}\n(.*?)```", text, re.DOTALL)
        if not marked and "def test_" not in block
    ]
    assert pairs
    return pairs


def marked(text, marker, language):
    texts = re.findall(rf"<!-- {re.escape(marker)} -->\n```{language}\n(.*?)```", text, re.DOTALL)
    assert texts, f"no block is marked {marker}"
    return texts


@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_code_runs(page, code, tmp_path):
    """Every block of Python of the site runs by itself. Those that record without an `init`, which another has, are told so."""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("deniable: all metrics: before_init")]
    assert (done.returncode, lines) == (0, []), page


def test_registries_are_sound():
    """Every block of TOML is a registry, or becomes one with a head and a metric."""
    for page, text in blocks("toml"):
        document = text if "format" in tomllib.loads(text) else HEAD + text
        document += "" if "segments" in tomllib.loads(document) else SEGMENTS
        document += "" if "metrics" in tomllib.loads(document) else METRIC
        assert registry.parse(document, page).metrics


def test_the_whole_registry_has_no_faults(tmp_path):
    """The registry of the guide has neither faults nor warnings."""
    path = tmp_path / "metrics.toml"
    path.write_text(*marked(DECLARE, "whole registry", "toml"), "utf-8")
    report = lint(path)
    assert (report.faults, report.warnings) == ((), ())


def test_each_key_of_a_metric_is_in_the_guide():
    """The guide has a row for every key that a metric may have, with its default, and for no others."""
    table = DECLARE[DECLARE.index("## Keys of a metric") : DECLARE.index("## Tables for")]
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|", table, re.MULTILINE))
    keys = {each.name: each.default for each in fields(Metric) if each.init and each.name != "id"}
    assert set(rows) == set(keys)
    for key, default in keys.items():
        written = re.match(r"`\"?([^`\"]+)\"?`$", rows[key].strip())
        if written and key != "sample":
            assert written[1] == (str(default).lower() if isinstance(default, bool) else str(default)), key
        elif not written:
            assert default in (MISSING, None, 0, "", (), tables.GRACE, tables.MIN_REPORTS), key


def test_each_key_of_a_table_is_in_the_guide():
    """The guide has every key of the tables that hold for all metrics, with its default."""
    table = DECLARE[DECLARE.index("## Tables for") : DECLARE.index("## Change")]
    rows = re.findall(r"^\|.*\| `(\w+)` \| `\"?([^`\"]+)\"?` \|", table, re.MULTILINE)
    kinds = (tables.Publication, tables.Retention, tables.Budget, tables.Caps, tables.Analysts)
    keys = [key for kind in kinds for key in fields(kind) if key.name not in ("metrics", "budget")]  # of caps in code only
    expected = [(key.name, f"{tables.MONTHS} * per_month" if key.default is ... else str(key.default).lower()) for key in keys]
    assert rows == expected


def test_each_type_is_in_the_guide_and_recorded_as_it_says():
    """The guide has a row for every type; what it records is an answer to the metric of the example registry, or its own."""
    table = DECLARE[DECLARE.index("## Kinds") : DECLARE.index("## Keys of a metric")]
    rows = dict(re.findall(r"^\| `(\w+)` \|.* \| `(record\(.*\))` \|$", table, re.MULTILINE))
    assert set(rows) == set(types.TYPES)
    declared = replace(registry.load(ROOT / "deploy" / "metrics.toml"), budget=FREE.budget)
    for example in re.findall(r"```toml\n(\[metrics.*?)```", DECLARE, re.DOTALL):
        declared = replace(declared, metrics=declared.metrics | registry.parse(HEAD + example).metrics)
    with StubServer(declared) as server:
        segments = {name: values[0] for name, values in declared.segments.items()}
        client = Client(dsn=server.dsn, registry=declared, consent=True, segments=segments, state=None, strict=True, caps=FREE)
        for type_, call in rows.items():
            taken = []
            eval(call, {"record": lambda metric, answer, taken=taken: taken.append((metric, answer))})
            ((metric, answer),) = taken
            assert declared.metrics[metric].type == type_
            client.record(metric, answer)
        assert client.stats()["undeclared"] == 0
        client.close()


def test_what_an_estimate_costs_the_mean():
    """The guide's figures of both estimates of a number are what the exact variance says."""
    for estimate, percent in re.findall(r'^\| `"(mean|distribution)"` \|.*\| ([\d.]+)% of the range', DECLARE, re.MULTILINE):
        number = Metric(id="n", type="number", values=(), range=("0", "1"), unit="s", estimate=estimate, epsilon="1")
        worst = float(mechanisms.of(number).worst_variance)
        assert f"{100 * (worst / 10_000) ** 0.5:.1f}" == percent


def test_the_tutorial(tmp_path):
    """Everything that the tutorial has its reader type works in this order, and shows what the tutorial says."""

    def run(command, **more):
        words = [sys.executable, *(["-m"] if command.startswith("deniable") else []), *command.removeprefix("python ").split()]
        environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")} | more
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    init, *others = marked(TUTORIAL, "tutorial: run", "sh")
    run(init)
    (tmp_path / "metrics.toml").write_text(*marked(TUTORIAL, "tutorial: metrics.toml", "toml"), "utf-8")
    (tmp_path / "app.py").write_text(*marked(TUTORIAL, "tutorial: app.py", "python"), "utf-8")
    linted, explained = map(run, others)
    error = re.search(r"standard error ([\d.]+) / sqrt\(n\)", TUTORIAL)
    assert error[0] in linted
    assert "at most 2.72 times" in explained
    with serving(tmp_path / "metrics.toml", tmp_path / ".deniable") as (dsn, key, url):
        headers = {"Authorization": f"Bearer {key}"}
        (send,) = marked(TUTORIAL, "tutorial: send", "sh")
        assert "Seed: 1" in run(send)
        segment, series = (
            requests.get(url + path, headers=headers, timeout=300).json()
            for block in marked(TUTORIAL, "tutorial: ask", "sh")
            for path in re.findall(r"http://127\.0\.0\.1:8080([^'\s]+)", block)
        )
        before = sum(period["n"] for period in series["periods"])
        weeks = [period for period in series["periods"] if period["n"]]
        assert (len(weeks), min(period["n"] for period in weeks)) >= (12, 20_000)
        rises = {line["value"]: line["trend"]["interval"] for line in series["lines"]}
        assert rises["dark"][0] > 0
        assert segment["segment"] == "platform=windows"
        assert 0 < segment["n"] < len(weeks) * 20_000
        browser = requests.Session()
        token = re.search(r'name="token" value="([^"]+)"', browser.get(f"{url}/login", timeout=300).text)[1]
        browser.post(f"{url}/login", data={"token": token, "key": key}, timeout=300)
        page = browser.get(f"{url}/m/ui.theme", timeout=300).text
        assert all(words in page for words in ("Over time", ">Compare</a>", 'value="platform=windows"'))
        (app,) = re.findall(r"^python .*", *marked(TUTORIAL, "tutorial: app", "sh"), re.MULTILINE)
        assert [run(app, DENIABLE_DSN=dsn) for _ in range(2)] == ["arrived\n", "nothing sent\n"]
        deadline = time.monotonic() + 120
        while (n := requests.get(f"{url}/api/v1/metrics/ui.theme", headers=headers, timeout=300).json()["n"]) == before:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert n == before + 1


def test_every_mechanism_has_a_page(monkeypatch):
    """The pages that are made have one for every mechanism, with its figures, and one for every command."""
    monkeypatch.syspath_prepend(str(DOCS))
    import made

    assert "</svg>" in made._plot("grr")
    assert "</svg>" in made._plot("window")
    monkeypatch.setattr(
        made, "_plot", lambda name: f"the plot of {name}"
    )  # all of them take half a minute: `just docs` draws them
    pages = dict(made.pages())
    assert {f"reference/mechanisms/{name}.md" for name in mechanisms._ALL} <= set(pages)
    assert "| 1.0 | 2.7183 | 1.00% of the range | 1 |" in pages["reference/mechanisms/window.md"]
    assert "| 1.0 | 2.7183 | 4.33 points | 1 |" in pages["reference/mechanisms/sampled_options.md"]
    assert "| ln 3 | 3.0000 | 0.87 points | 1 |" in pages["reference/mechanisms/coin.md"]
    assert "## `registry`" in pages["reference/commands.md"]
    assert "| `DENIABLE_DSN` |" in pages["reference/variables.md"]
    assert "| `this_period` | this answer was left out: the device has already reported" in pages["reference/reasons.md"]


def test_the_map_of_accuracy(monkeypatch, tmp_path):
    """The map has every mechanism, and lists the cells that are off before all others."""
    monkeypatch.syspath_prepend(str(DOCS))
    import made

    pages = dict(made._accuracy())
    assert "</svg>" in pages["reference/accuracy-ratio.svg"]
    assert "</svg>" in pages["reference/accuracy-coverage.svg"]
    for name in mechanisms.names():
        assert f"| `{name}` | 2 |" in pages["reference/accuracy.md"]
    figures = json.loads(made.ACCURACY.read_text("utf-8"))
    figures["cells"][-1] |= {"ratio": [1.5, 0.01]}
    monkeypatch.setattr(made, "ACCURACY", tmp_path / "accuracy.json")
    made.ACCURACY.write_text(json.dumps(figures), "utf-8")
    page = dict(made._accuracy())["reference/accuracy.md"]
    assert page.index("1.500±0.010") < page.index("## Each mechanism")


def test_what_two_coins_cost():
    """The table of what two coins cost is what the exact variance says."""
    rows = re.findall(r"^\| ([\d,]+) \| ± ([\d.]+)", PAGES["explanation/why.md"], re.MULTILINE)
    assert len(rows) == 4
    coin = mechanisms.make("coin", domain_size=2)
    for reports, points in rows:
        n = int(reports.replace(",", ""))
        assert abs(196 * (coin.variance(0.5, n) + 0.25 / n) ** 0.5 / float(points) - 1) < 0.1
