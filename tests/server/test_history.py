"""The public history of questions: what was asked when, in lines that are only added, and nothing else."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from hashlib import sha256

import pytest
from registries import metric_toml, registry_toml

from deniable_aggregator.audit import history
from deniable_aggregator.audit.files import verify
from deniable_aggregator.audit.log import AuditLog
from deniable_aggregator.deletion.app import AppRemoval
from deniable_aggregator.deletion.erase import Removal
from deniable_aggregator.store import Store

from .conftest import INGEST, READ, Served


def theme(**keys):
    return metric_toml(
        "theme", **{"values": ["light", "dark"], "epsilon": 1.0, "public": True, "description": "Which theme?"} | keys
    )


SIZE = metric_toml("size", estimate="mean", range=[1, 100], unit="kB", epsilon=2.0, public=True, expires=date(2031, 1, 31))
SECRET = metric_toml("secret", values=["fee", "fi"], epsilon=1.0, description="A secret question")


@pytest.fixture
def start(settings, tmp_path):
    """Return what serves metrics, one registry after the other, on one store."""
    servers = []

    def serve(*metrics, about="results", **tables):
        path = tmp_path / "metrics.toml"
        path.write_text(registry_toml(*metrics, **tables), "utf-8")
        servers.append(Served(replace(settings, registry=str(path), about=about)))
        return servers[-1]

    yield serve
    for server in servers:
        server.store._client.close()


def lines(served):
    answer = served.http.get("/history.json")
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "max-age=3600")
    return answer.get_json()["lines"]


def events(served):
    return [(line["event"], line["metric"]) for line in lines(served)]


def page(served, path="/history"):
    answer = served.http.get(path)
    assert answer.status_code == 200
    return answer.get_data(as_text=True)


def test_it_can_only_grow(start):
    """Whatever becomes of the questions: each history begins with the one before, and its hashes hold."""
    registries = [
        (theme(), SECRET),
        (theme(), SECRET),  # nothing was changed
        (theme(epsilon=2.0, version=2), SIZE),
        (SIZE, SECRET),
        (theme(description="Which one?"), SIZE),
        (theme(public=False), SIZE),
        (),
    ]
    before = []
    for number, metrics in enumerate(registries):
        served = start(*(metrics or (SECRET,)))
        now = lines(served)
        assert now[: len(before)] == before
        before = now
        if number == 4:
            Removal(served.store, "theme").sweep()
            assert lines(served) == before
    assert events(served) == [
        ("declared", "theme"),
        ("changed", "theme"),
        ("declared", "size"),
        ("ended", "theme"),
        ("declared", "theme"),
        ("ended", "theme"),
        ("ended", "size"),
    ]
    previous = sha256(b"deniable history 1\nshop").hexdigest()
    for number, line in enumerate(before, 1):
        body = json.dumps({name: text for name, text in line.items() if name != "hash"}, ensure_ascii=False, sort_keys=True)
        assert (line["number"], line["previous"]) == (number, previous)
        previous = line["hash"]
        assert sha256(b"deniable history 1\n" + body.encode()).hexdigest() == previous
    assert previous in page(served)


def test_each_line_is_in_the_audit_log(start):
    """So that who keeps an anchor of the log sees whether the history was changed."""
    served = start(theme(), SIZE)
    noted = [entry for entry in _entries(served) if entry["event"] == "question.noted"]
    assert [entry["details"] for entry in noted] == [
        {"metric": line["metric"], "number": line["number"], "hash": line["hash"]} for line in lines(served)
    ]
    assert not verify(served.app.audit).faults


def _entries(served):
    return [json.loads(line) for line in served.store.audit.between(0, -1)]


def test_the_page_says_what_was_changed(start):
    """Before and after; of a new question all that is declared."""
    start(theme(), SIZE)
    served = start(theme(epsilon=2.0, version=2, values=["light", "dark", "auto"]), SIZE)
    html = page(served)
    assert "<td><bdi>1</bdi></td><td><bdi>2</bdi></td>" in html
    assert "<td><bdi>light, dark</bdi></td><td><bdi>light, dark, auto</bdi></td>" in html
    assert "<bdi>1 to 100</bdi>" in html
    assert "<bdi>2031-01-31</bdi>" in html
    assert html.index("is changed") < html.index("is asked")  # the newest first
    assert "<script" not in html
    assert '<a href="/history">' in page(served, "/results")


def test_it_has_what_is_public_and_nothing_else(start):
    """No question without public results, no owner, no number of reports, no name of a segment."""
    served = start(theme(segments=["platform"], owner="ann@shop.example"), SECRET, segments={"platform": ["linux", "macos"]})
    served.post({"format": 1, "app": "shop", "groups": [served.group("theme", [0] * 137), served.group("secret", [0] * 137)]})
    served.drain(days=40)
    text = page(served) + json.dumps(lines(served))
    for word in ("secret", "ann@", "platform", "linux", INGEST, READ):
        assert word not in text
    assert not re.search(r"\b137\b", text)  # a hash may have these digits
    assert set(lines(served)[0]) == {"number", "time", "event", "metric", "texts", "previous", "hash"}


def test_it_is_noted_only_where_results_are_public(start):
    """Not by other servers, and not in a trial."""
    for about in ("off", "public"):
        served = start(theme(), about=about)
        assert served.http.get("/history").status_code == served.http.get("/history.json").status_code == 404
        assert not served.store.history.between(0, -1)
    served = start(theme(), publication={"min_reports": 1, "trial": True})
    assert served.http.get("/history").status_code == 404
    assert not served.store.history.between(0, -1)


def test_many_servers_note_it_once(start):
    """Each tries, and the log decides who is first."""
    served = start(SECRET)
    store, questions = served.store, {f"q{at}": {"question": f"Number {at}"} for at in range(5)}

    def note(_):
        history.note(AuditLog(Store(store._client, "shop")), questions)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(note, range(8)))
    stored = history.read(served.app.audit)
    assert [line.metric for line in stored] == list(questions)
    assert [line.number for line in stored] == [1, 2, 3, 4, 5]
    assert not verify(served.app.audit).faults


def test_long_histories_have_pages(start):
    """A full page of the file stays as it is."""
    served = start(SECRET)
    for at in range(60):
        history.note(served.app.audit, {"theme": {"question": f"Number {at}"}})
    first = served.http.get("/history.json").get_json()
    assert (len(first["lines"]), first["pages"]) == (50, 2)
    assert [line["number"] for line in served.http.get("/history.json?page=2").get_json()["lines"]] == list(range(51, 61))
    assert "Page 1 of 2" in page(served)
    assert served.http.get("/history?page=3").status_code == 404
    history.note(served.app.audit, {"theme": {"question": "Another"}})
    assert served.http.get("/history.json").get_json() == first


def test_an_address_may_ask_so_often(settings, tmp_path):
    """As for results."""
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(theme()), "utf-8")
    served = Served(replace(settings, registry=str(path), about="results", rate_limit_source="2/hour"))
    elsewhere = {"REMOTE_ADDR": "192.0.2.7"}
    codes = [served.http.get(at, environ_base=elsewhere).status_code for at in ("/history", "/history.json", "/history")]
    served.store._client.close()
    assert codes == [200, 200, 429]


def test_it_goes_with_the_app(start):
    """Who erases an app erases it, too; the audit log stays."""
    served = start(theme())
    AppRemoval(served.store).sweep()
    assert not served.store.history.between(0, -1)
