"""Names say what they stand for: no variable, parameter, function or class has a name that fits anything."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = {
    *("found", "told", "said", "kept", "asked", "wanted", "given", "shown", "drawn", "made"),
    *("whole", "some", "several", "rest", "apart", "each"),
}
"""Participles and quantities; `each` is one unless it stands in a comprehension.

A name is a noun that says what it is: rows, releases, metric, faults, page, total."""


NAMED = {
    ast.Name: "id",
    ast.Attribute: "attr",
    ast.arg: "arg",
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
}
"""By class of a node that may give a name, where the name stands."""


def forbidden(text):
    """Return each forbidden name that a module gives, and its line."""
    results, in_comprehensions = [], set()
    for node in ast.walk(ast.parse(text)):  # a comprehension before its names
        if isinstance(node, ast.comprehension):
            in_comprehensions.update(ast.walk(node.target))
        elif (field := NAMED.get(type(node))) and isinstance(getattr(node, "ctx", None), ast.Store | None):
            name = getattr(node, field)
            if name.strip("_") in FORBIDDEN and not (name == "each" and node in in_comprehensions):
                results.append((name, node.lineno))
    return results


@pytest.mark.parametrize(
    "folder",
    [
        "client",
        "aggregator",
        "server",
        "deploy",
        "docs",
        ".ci",
        "benchmarks",
        "tests/client",
        "tests/system/client",
        "tests/system/browser",
        "tests/system/deploy",
        "tests/system/e2e",
        "tests/system/faults",
        "tests/aggregator",
        "tests/system/aggregator",
        "tests/server",
        "tests/system/server",
        "tests/house",
        "tests/support",
    ],
)
def test_names_say_what_they_stand_for(folder):
    """No name of product code, of programs beside it, or of tests that follow by now, is in the list."""
    files = sorted((ROOT / folder).rglob("*.py"))
    assert len(files) > 1
    assert [
        f"{file.relative_to(ROOT)}:{line} {name}" for file in files for name, line in forbidden(file.read_text("utf-8"))
    ] == []


@pytest.mark.parametrize(
    "line",
    [
        "found = rows[0]",
        "found: list[int] = []",
        "self._kept = 1",
        "def told(): pass",
        "def f(*, given): pass",
        "lambda asked: 1",
        "for each in rows: pass",
        "with open(path) as drawn: pass",
        "if (shown := 1): pass",
    ],
)
def test_a_name_is_seen(line):
    assert forbidden(line)


@pytest.mark.parametrize("line", ["[each for each in rows]", "rows = found", "f(given=1)", "x.kept()", "faults = 1"])
def test_other_lines_are_not(line):
    assert not forbidden(line)
