"""Each claim of docs/explanation/claims.md names tests that fail if it is false, and these tests exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "claims.md").read_text("utf-8")
NAME = re.compile(r"^- `(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`$", re.MULTILINE)


def claims():
    """Return the first words of each claim, with all that stands below it until the next one."""
    pieces = re.split(r"^\*\*", PAGE, flags=re.MULTILINE)[1:]
    return [(piece.partition("**")[0], piece.partition("\n#")[0]) for piece in pieces]


@cache
def names_in(file):
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(("claim", "text"), claims(), ids=[claim for claim, _ in claims()])
def test_a_claim_names_its_tests(claim, text):
    """Each claim has at least one test, and each line of its list is a test that stands in its file."""
    names = NAME.findall(text)
    assert names, claim
    assert len(names) == text.count("tests/")
    for file, name in names:
        assert name in names_in(file), f"{file} has no {name}"


def test_all_claims_are_read():
    """Nothing that names a test stands outside a claim, and the page has not lost its form."""
    assert len(claims()) > 10
    assert sum(len(NAME.findall(text)) for _, text in claims()) == PAGE.count("tests/") > 30
