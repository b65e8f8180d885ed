"""Counts in sentences: one owner of the plural, which all commands and pages ask."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deniable.messages.plural import plural

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (0, "report", "0 reports"),
        (1, "report", "1 report"),
        (1200, "report", "1,200 reports"),
        (1, "batch", "1 batch"),
        (2, "batch", "2 batches"),
        (2, "entry", "2 entries"),
        (2, "day", "2 days"),
        (2, "person", "2 people"),
        (3, "kept answer", "3 kept answers"),
    ],
)
def test_a_count_has_its_plural(number, noun, words):
    assert plural(number, noun) == words


def test_nothing_else_makes_plurals():
    """No module and no template adds an s by itself."""
    own = re.compile(r"""\{?["'](e?s|ies)["'] if |if [^}{"]* else ["'](e?s|ies)["']""")
    files = [path for folder in ("client", "aggregator", "server") for path in (ROOT / folder).rglob("*.*")]
    others = [
        f"{path.relative_to(ROOT)}: {line.strip()[:90]}"
        for path in files
        if path.suffix in {".py", ".html", ".jinja"} and path.name != "plural.py"
        for line in path.read_text("utf-8").splitlines()
        if own.search(line)
    ]
    assert others == []
