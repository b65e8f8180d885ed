"""Texts that people cannot tell apart, and those that they can."""

from __future__ import annotations

import time

import pytest

from deniable.messages.lookalike import alike, nearest, spelt


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("dark", "dark "),
        ("dark", "Dark"),
        ("not set", "not\u00a0set"),
        ("not set", "notset"),
        ("paypal", "p\u0430ypal"),  # Cyrillic
        ("paypal", "\u0440\u0430\u0443\u0440\u0430l"),
        ("Paypal", "\u0420aypal"),
        ("omega", "\u03bfmega"),  # Greek
        ("Alpha", "\u0391lpha"),
        ("dark", "\uff44\uff41\uff52\uff4b"),  # fullwidth
        ("dark", "da\u200brk"),  # zero width space
        ("dark", "dark\ufe0f"),  # variation selector
        ("dark", "da\u00adrk"),  # soft hyphen
        ("dark", "\u202edark"),  # right to left
        ("dark", "dark\u3164"),  # a letter that fills
        ("dark", "da\u034frk"),
        ("caf\u00e9", "cafe\u0301"),
        ("\ufb01ne", "fine"),  # a ligature
        ("stra\u00dfe", "STRASSE"),
        ("10", "1O"),
        ("O", "0"),
        ("1", "l"),
        ("paypal", "paypaI"),
        ("paypal", "paypa1"),
        ("I", "1"),
        ("Item", "item"),
        ("\u0406tem", "item"),  # Cyrillic capital I
        ("\u0412\u0430\u0441\u044f", "\u0432\u0430\u0441\u044f"),  # Russian, of another case
        ("t\u0131tle", "title"),  # dotless i
    ],
)
def test_alike(first, second):
    """These look alike, whichever comes first, and among others."""
    assert list(alike([first, second])) == [(first, second)]
    assert list(alike(["another", second, "other", first])) == [(second, first)]


@pytest.mark.parametrize(
    "texts",
    [
        ["light", "dark", "system"],
        ["mail", "mall"],
        ["bill", "bile"],
        ["1", "2", "10", "3-5", "6-10"],
        ["2.4.0", "2.4.1", "24.0"],
        ["\u0434\u0430", "\u043d\u0435\u0442"],
        ["a", "\u00e4"],
        ["cafe", "caf\u00e9"],
        ["ui.theme", "ui-theme"],
        ["\u03b1\u03b2", "\u03b2\u03b1"],
        ["+1", "-1"],
        [],
    ],
)
def test_not_alike(texts):
    """These anybody can tell apart."""
    assert list(alike(texts)) == []


def test_each_once():
    """Of several that look alike each is told once, with the first of them."""
    assert list(alike(["dark", "light", "dark ", "Dark", "light"])) == [("dark", "dark "), ("dark", "Dark"), ("light", "light")]


def test_invisible_texts_are_alike():
    """Texts of nothing that shows look alike, too."""
    assert list(alike(["\u200b", " "])) == [("\u200b", " ")]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("dark ", "dark "),
        ("p\u0430ypal", "p<U+0430>ypal"),
        ("da\u200brk", "da<U+200B>rk"),
        ("\U000e0041", "<U+E0041>"),
        ("a\tb", "a<U+0009>b"),
    ],
)
def test_spelt(text, written):
    """What a message shows tells the difference: characters beyond printable ASCII are named."""
    assert spelt(text) == written


@pytest.mark.parametrize(
    ("text", "known", "near"),
    [
        ("windows", ["android", "ios"], None),
        ("zzz", ["yes", "no"], None),
        ("drak", ["light", "dark"], "dark"),
        ("yse", ["no", "yes"], "yes"),
        ("iOS", ["android", "ios"], "ios"),
        ("2.5", ["2.4", "3.0"], None),
        ("p60", ["p50", "p90"], None),
        ("english", ["welsh", "german"], None),
        ("epsilon", ["format", "revision", "app"], None),
        ("means", ["count", "mean"], "mean"),
        ("no", ["on", "off"], None),
        ("gr", ["oue", "grr"], "grr"),
        ("registery", ["query", "registry"], "registry"),
        ("categorial", ["ordinal", "categorical"], "categorical"),
        ("ui.tehme", ["ui.size", "ui.theme"], "ui.theme"),
        ("month", ["per_day", "per_month"], "per_month"),
        ("theme42", ["theme24"], None),
        ("theme2", ["theme"], "theme"),
    ],
)
def test_nearest(text, known, near):
    """What nobody would mistype like this is not suggested."""
    assert nearest(text, known) == near


def test_many():
    """As many values as a metric may have take no time that anybody notices."""
    began = time.process_time()
    assert not list(alike(f"v{number:05}x" for number in range(1 << 16)))
    assert time.process_time() - began < 10
