"""The public page: what is asked, and nothing that was answered."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from html import unescape

import pytest
import redis
from mixing import mixed_toml, relay_toml
from registries import metric_toml, registry_toml

from deniable_server import create_app

from .conftest import Served

REGISTRY = registry_toml(
    metric_toml(
        "ui.theme",
        values=["light", "dark", "<script>alert(1)</script>"],
        mechanism="grr",
        description="Which theme <b>people</b> use",
        owner="design@shop.example",
    ),
    metric_toml("used", mechanism="coin", period="week", sample=0.25, description="Whether it was used"),
    metric_toml("daily", epsilon=0.5, epsilon_permanent=1.0, description="Whether it was used today"),
    metric_toml("wait", range=[1, 60000], unit="ms", scale="log", estimate="mean", description="How long it took"),
    metric_toml("tools", type="set", values=["saw", "file"], description="Which tools are used"),
    metric_toml("site", type="string", discover=True, epsilon=4.0, description="Which site"),
    metric_toml("page", values=[f"page {number}" for number in range(150)], description="Which page"),
    metric_toml("ended", expires=date(2020, 1, 1), description="No longer asked"),
    publication={"min_reports": 1, "trial": True},
)


@pytest.fixture
def public(settings, tmp_path):
    """Serve a registry with the public page, and pages that ask for a key."""
    path = tmp_path / "public.toml"
    path.write_text(REGISTRY, "utf-8")
    server = Served(replace(settings, registry=str(path), about="public"))
    yield server
    server.store._client.close()


def text(public, path="/about"):
    return public.http.get(path).get_data(as_text=True)


def test_it_is_off_unless_asked_for(served, settings):
    """Without the setting there is no such page; a server for uploads has none in any case."""
    assert served.http.get("/about").status_code == 404
    uploads = create_app(replace(settings, about="public", serves="ingest"))
    assert uploads.test_client().get("/about").status_code == 404


def test_everybody_may_read_it(public):
    """It needs no key and sets no cookie, under any name of the server; its policy forbids other scripts than ours."""
    answer = public.http.get("/about", headers={"Host": "telemetry.shop.example"})
    assert answer.status_code == 200
    assert "Set-Cookie" not in answer.headers
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    html = answer.get_data(as_text=True)
    assert re.findall(r"<script[^>]*>", html) == ['<script src="/static/coin.js" defer>']
    assert not re.search(r"style=|<style|\son\w+=|https?:|\b(nan|inf|None)\b", html)
    assert html.count("<h1") == 1
    assert len(html.encode()) < 200_000


def test_it_says_what_is_asked(public):
    """Each question, its answers, how it is randomised, what a report tells, and how often: as declared, and as computed."""
    html = text(public)
    assert "7 questions" in html
    assert "<b>Trial</b>" in html
    assert "Which theme &lt;b&gt;people&lt;/b&gt; use" in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    for metric, declared in public.app.highest.items():
        part = html.partition(f"<code>{metric}</code>")[2].partition("</article>")[0]
        if metric == "ended":
            assert not part
            continue
        assert declared.mechanism.summary in unescape(part)
        assert declared.mechanism.says in unescape(part)

    def part(metric):
        return html.partition(f"<code>{metric}</code>")[2].partition("</article>")[0]

    assert "at most 2.72 times" in part("ui.theme")  # e
    assert "for 73.2% likely" in part("ui.theme")  # e / (1 + e) = 73.106%, rounded up
    assert "at most 3 times" in part("used")
    assert "for 75.0% likely" in part("used")
    assert "once a week at most. Only 25% of answers are reported." in part("used")
    assert "all reports of an answer together shift the odds at most 2.72 times" in part("daily")
    assert "A number from 1 to 60000 ms." in part("wait")
    assert "Any of these options, none to all." in part("tools")
    assert "Any text of at most 16 bytes." in part("site")
    assert "One of these answers. 50 more are not listed here." in part("page")
    assert part("page").count("<li>") == 100


def test_it_shows_nothing_collected(public, monkeypatch):
    """With reports it is the same page as without, and without a store, too."""
    before = text(public)
    public.post({"format": 1, "app": "shop", "groups": [public.group("used", [1] * 500)]})
    public.drain(days=5)
    assert text(public) == before

    def lost(*_, **__):
        raise redis.ConnectionError

    monkeypatch.setattr("redis.ConnectionPool.get_connection", lost)
    assert public.http.get("/readyz").status_code == 503
    assert text(public) == before


def test_several_apps(settings, tmp_path):
    """Each has its page; one that is not counted here has none."""
    paths = []
    for name in ("shop", "labs"):
        paths.append(tmp_path / f"{name}.toml")
        paths[-1].write_text(REGISTRY.replace('app = "shop"', f'app = "{name}"'), "utf-8")
    server = Served(replace(settings, registry=":".join(map(str, paths)), about="public"))
    assert "What shop asks" in text(server)
    assert "What labs asks" in text(server, "/about?app=labs")
    assert 'href="/about?app=labs"' in text(server)
    assert server.http.get("/about?app=secret").status_code == 404
    server.store._client.close()


def test_hundreds_of_questions_have_pages(settings, tmp_path):
    """No page is above 200 KB, however many and long the answers are; together they show all questions."""
    values = [f"an answer that takes some words, and has the number {number}" for number in range(150)]
    more = (
        f'[metrics."m{at:03}"]\ntype = "categorical"\nvalues = {values}\nepsilon = 1\ndescription = "d"\nowner = "o"\n'
        for at in range(200)
    )
    path = tmp_path / "public.toml"
    path.write_text(f'format = 1\nbudget.per_month = 10000\nbudget.lifetime = 100000\napp = "shop"\n{"".join(more)}', "utf-8")
    server = Served(replace(settings, registry=str(path), about="public"))
    results, address = [], "/about"
    while address:
        html = text(server, address)
        assert len(html.encode()) < 200_000
        assert "200 questions" in html
        results += re.findall("<code>(m[0-9]+)</code>", html)
        address = next(iter(re.findall(r'href="(/about[^"]*)" rel="next"', html)), "")
    assert results == [f"m{at:03}" for at in range(200)]
    assert server.http.get("/about?page=99").status_code == 404
    server.store._client.close()


def test_long_answers_are_not_all_listed(settings, tmp_path):
    """It says how many are left out."""
    values = [f"{number} {'x' * 500}" for number in range(20)]
    path = tmp_path / "public.toml"
    metric = f'type = "categorical"\nvalues = {values}\nepsilon = 1\ndescription = "d"\nowner = "o"\n'
    path.write_text(
        f'format = 1\nbudget.per_month = 10000\nbudget.lifetime = 100000\napp = "shop"\n[metrics.m]\n{metric}', "utf-8"
    )
    server = Served(replace(settings, registry=str(path), about="public"))
    html = text(server)
    listed = html.count("<li><bdi>")
    assert 1 <= listed < 20
    assert f"{20 - listed} more are not listed here." in html
    server.store._client.close()


def test_a_metric_that_a_relay_mixes_has_both_figures_the_local_one_first(settings, tmp_path):
    """The page says who mixes and on what the second rests."""
    path = tmp_path / "mixed.toml"
    path.write_text(relay_toml(mixed_toml(description="Mixed")), "utf-8")
    server = Served(replace(settings, registry=str(path), about="public"))
    page = unescape(server.http.get("/about").get_data(as_text=True))
    parts = [
        "It can shift the odds between two answers at most 20.1 times.",
        "Example Foundation mixes it with at least 9,999 others before the server can open it.",
        "the server can shift the odds at most 1.35 times (epsilon 0.3)",
        "do not work together, which nobody can check",
    ]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
    server.store._client.close()
