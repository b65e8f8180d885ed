"""What is shipped to watch a service speaks of what the service really says: alerts, a dashboard, and Prometheus itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from itertools import combinations
from pathlib import Path
from urllib.parse import urlencode, urlsplit
from urllib.request import ProxyHandler, build_opener

import pytest
import yaml
from observed import METRICS, observed
from processes import end

from deniable_aggregator.process.ports import free_port
from deniable_aggregator.store.server import snapshot

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
SITE = "https://deniable.github.io/deniable/"
TESTS = Path(__file__).parent / "alerts.yml"
OURS = re.compile(r"\b((?:deniable|process)_\w+)(?:\{([^}]*)\})?")
RULES = [rule for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text("utf-8"))["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((DEPLOY / "grafana-dashboard.json").read_text("utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [rule["expr"] for rule in RULES] + [target["expr"] for panel in PANELS for target in panel["targets"]]

_direct = build_opener(ProxyHandler({}))


def tool(name):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name} on PATH; Debian's package prometheus has it")
    return path


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    if sys.platform != "linux":
        pytest.skip("processes are looked up in /proc")
    with observed(tmp_path_factory.mktemp("watching")) as running:
        assert running.upload(0, 1, 2) == 202
        running.until(lambda: not running.store.backlog())
        yield running


@pytest.fixture(scope="module")
def series(service):
    """Return what a real scrape of a server and of a worker shows: each name with the labels it has."""
    labels_of = {}
    for name, *labels in (*service.numbers(), *service.worker_numbers()):
        labels_of.setdefault(name, {"job", "instance"}).update(label for label, _ in labels)
    return labels_of


@pytest.mark.parametrize("expression", sorted(set(EXPRESSIONS)))
def test_expressions_name_what_there_is(series, expression):
    """Every series and every label in an alert or a panel is one that a server or a worker shows."""
    names = OURS.findall(expression)
    assert names or re.match(r"up\{", expression)
    for name, matchers in names:
        assert name in series
        assert set(re.findall(r"(\w+) *[=!]", matchers)) <= series[name]
    labels = set().union(*(series[name] for name, _ in names)) if names else set()
    for grouping in re.findall(r"\b(?:by|on) *\(([^)]*)\)", expression):
        assert set(re.findall(r"\w+", grouping)) <= labels


def test_every_series_is_documented(series):
    """Each series that a server or a worker shows stands in docs/reference/numbers.md."""
    text = (ROOT / "docs" / "reference" / "numbers.md").read_text("utf-8")
    for name in series:
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        assert f"`{base}`" in text or name.startswith("process_"), name


FAILURES = re.compile(r"(faults|errors|rejected|dead_letters|failures)_total$")
LOOKED_UP = {"deniable_worker_dead_letters_total": "deniable_dead_letters"}
"""Counters of which the store itself tells the sum: alerts and panels ask for that."""


def test_every_counter_of_failures_is_watched(series):
    """Each counter of something that fails stands in an alert and in a panel, so that a failure of weeks is seen."""
    failures = {LOOKED_UP.get(name, name) for name in series if FAILURES.search(name)}
    assert len(failures) >= 5
    for watching in ([rule["expr"] for rule in RULES], [target["expr"] for panel in PANELS for target in panel["targets"]]):
        names = {name for expression in watching for name, _ in OURS.findall(expression)}
        assert failures <= names, failures - names


def test_rules_and_configuration_are_valid(tmp_path):
    """Prometheus takes the rules, and the example with the key where it says."""
    promtool = tool("promtool")
    for name in ("alerts.yml", "prometheus.yml"):
        shutil.copy(DEPLOY / name, tmp_path)
    (tmp_path / "deniable-metrics-key").write_text(METRICS, "utf-8")
    for command in ("rules", "config"):
        name = "alerts.yml" if command == "rules" else "prometheus.yml"
        done = subprocess.run(
            [promtool, "check", command, name], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{len(RULES)} rules found" in done.stdout


def test_alerts_fire_and_are_silent():
    """Each alert fires when something is wrong, is silent before, and all are while all is well."""
    tried = Counter()
    for test in yaml.safe_load(TESTS.read_text("utf-8"))["tests"]:
        for alert in test["alert_rule_test"]:
            tried[alert["alertname"], bool(alert.get("exp_alerts"))] += 1
    assert set(tried) == {(rule["alert"], fires) for rule in RULES for fires in (True, False)}
    done = subprocess.run(
        [tool("promtool"), "test", "rules", TESTS.name],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alerts_lead_to_what_to_do(rule):
    """Each alert has a severity, and names a heading of a page that is there, by its address on the web."""
    assert rule["labels"]["severity"] in ("warning", "critical")
    page, _, anchor = rule["annotations"]["runbook_url"].removeprefix(SITE).partition("/#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / f"{page}.md").read_text("utf-8"), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_dashboard_is_whole():
    """Panels have their own ids and places, a title, a description and a unit; all ask the data source that is chosen."""
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids)) > 20
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert variables["app"]["datasource"] == source
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"] == source
        assert all(target["datasource"] == source for target in panel["targets"])
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
        used = set(re.findall(r"\$(\w+)", json.dumps(panel["targets"]).replace("${datasource}", "")))
        assert used <= {"app", "__rate_interval"}
    for one, other in combinations([panel["gridPos"] for panel in DASHBOARD["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in DASHBOARD["panels"])


@pytest.fixture
def prometheus(service, tmp_path):
    """Run Prometheus with the example, pointed at the service; return how to ask it."""
    binary = tool("prometheus")
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text("utf-8"))
    config["global"]["scrape_interval"] = "1s"
    for job, url in zip(config["scrape_configs"], (service.url, service.worker_url), strict=True):
        job["static_configs"] = [{"targets": [urlsplit(url).netloc]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config), "utf-8")
    (tmp_path / "deniable-metrics-key").write_text(METRICS, "utf-8")
    shutil.copy(DEPLOY / "alerts.yml", tmp_path)
    address = f"127.0.0.1:{free_port()}"
    with (tmp_path / "log").open("wb") as log:
        command = [binary, "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={address}"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)

    def ask(expression):
        with _direct.open(f"http://{address}/api/v1/query?{urlencode({'query': expression})}", timeout=120) as answer:
            return json.load(answer)["data"]["result"]

    yield ask
    end(process)


def test_prometheus_reads_the_service(service, prometheus):
    """Prometheus, with the shipped example, gets in with the key, reads both, and answers every panel and every alert."""
    service.until(lambda: len(prometheus("count_over_time(up[1m]) >= 3 and on (job) up == 1")) == 2)
    (accepted,) = prometheus("deniable_reports_accepted_total")
    assert accepted["metric"]["app"] == "shop"
    assert float(accepted["value"][1]) == service.numbers()["deniable_reports_accepted_total", ("app", "shop")]
    empty = []
    for panel in PANELS:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "1m").replace("$app", "shop")
            if not prometheus(expression):  # what Prometheus does not understand is an error already
                empty.append(panel["title"])
    assert set(empty) <= {"Reports refused, by code", "Uploads, by what became of them", "Duplicates", "Lag", "Chores that fail"}
    snapshot.note(service.store._client, time.time())
    service.until(lambda: prometheus("deniable_backup_timestamp_seconds > 0"))
    for rule in RULES:
        assert prometheus(rule["expr"]) == [], rule["alert"]
