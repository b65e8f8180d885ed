"""The look that a visitor chooses: kept by a cookie, shown by every page, and never a way to elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from registries import metric_toml, registry_toml

import deniable_server
from deniable_aggregator.store import connect
from deniable_server import create_app
from deniable_server.settings import Settings

STYLE = Path(deniable_server.__file__).parent / "static" / "dashboard.css"
TEXT = {"ink", "soft", "accent", "other", "change", "good", "bad"}  # tokens of texts; of marks that are no text: edge


@pytest.fixture
def client(start_store, tmp_path, monkeypatch):
    """Make a browser before open pages."""
    store = connect(start_store("server"))
    store.flushall()
    monkeypatch.setattr("deniable_server.settings.opened", lambda _url, **_: store)
    path = tmp_path / "metrics.toml"
    path.write_text(registry_toml(metric_toml("ui.dark")), "utf-8")
    return create_app(Settings(redis_url="redis://unused", registry=str(path), dashboard="open")).test_client()


def links(html):
    """Return the links of the switch, by their text."""
    nav = html.partition('class="theme"')[2].partition("</nav>")[0]
    return {text: href.replace("&amp;", "&") for href, text in re.findall(r'href="([^"]+)"[^>]*>(\w+)<', nav)}


def test_a_theme_is_chosen_without_script(client):
    """A link leads back to the page with its whole state, which then names the theme; the browser's own needs no cookie."""
    page = "/m/ui.dark?level=0.99"
    plain = client.get(page).text
    assert "data-theme" not in plain
    answer = client.get(links(plain)["Dark"])
    assert (answer.status_code, answer.location) == (303, page)
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    dark = client.get(page).text
    assert '<html lang="en" data-theme="dark">' in dark
    assert re.search(r'aria-current="true">Dark</a>', dark)
    client.get(links(dark)["Auto"])
    assert "data-theme" not in client.get(page).text
    assert client.get("/theme?to=blue").status_code == 400
    client.set_cookie("deniable_theme", '"><script>')
    assert "script>" not in client.get("/login").text.replace("<script src", "")


@pytest.mark.parametrize(
    "back",
    [
        "https://evil.example/",
        "//evil.example/m/ui.dark",
        "/\\evil.example",
        "\\\\evil.example",
        "javascript:alert(1)",
        "/static/dashboard.css",
        "/m/ui.dark/../../x",
        "/api/v1/metrics",
        "",
        "/\r\nSet-Cookie: a=b",
    ],
)
def test_a_theme_leads_nowhere_else(client, back):
    """Whatever a foreign link names as the page before, the visitor stays among these pages."""
    answer = client.get("/theme", query_string={"to": "dark", "back": back})
    assert (answer.status_code, answer.location) == (303, "/")


def test_a_page_is_made_anew_of_what_it_leads_to(client):
    """Its query is written anew, too, so that no header or scheme comes with it."""
    answer = client.get("/theme", query_string={"to": "light", "back": "/m/ui.dark?_scheme=javascript&level=0.9\r\nX: 1"})
    assert answer.location == "/m/ui.dark?_scheme=javascript&level=0.9%0D%0AX%3A+1"


def luminance(colour):
    """Return the relative luminance of a colour, by WCAG."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_colours_are_told_apart():
    """By WCAG 2.2: texts from the paper by 4.5 to 1, and marks by 3 to 1, in light and dark."""
    text = STYLE.read_text("utf-8")
    tokens = {name: pair for name, *pair in re.findall(r"--(\w+(?:-\w+)?): light-dark\((#\w+), (#\w+)\)", text)}
    assert {*TEXT, "edge", "paper", "card", "change", "change-paper"} <= tokens.keys()
    for look in (0, 1):
        for paper in ("paper", "card"):
            for name in (*TEXT, "edge"):
                one, other = sorted(luminance(tokens[each][look]) for each in (name, paper))
                assert (other + 0.05) / (one + 0.05) >= (4.5 if name in TEXT else 3), (name, paper, look)
        one, other = sorted(luminance(tokens[each][look]) for each in ("change", "change-paper"))
        assert (other + 0.05) / (one + 0.05) >= 4.5


def test_the_style_has_its_limits():
    """It is small, works where colours are forced, on paper, and for whoever asks for contrast."""
    text = STYLE.read_text("utf-8")
    for query in ("forced-colors: active", "prefers-contrast: more", "@media print"):
        assert query in text
