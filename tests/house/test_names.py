"""Names say what they stand for: no variable, parameter, function or class has a name that fits anything."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN = {
    *("found", "told", "said", "kept", "asked", "wanted", "given", "shown", "drawn", "made"),
    *("whole", "some", "several", "rest", "apart"),
}
"""Participles and quantities. A name is a noun that says what it is: rows, releases, metric, faults, page, total."""


def names(tree):
    """Yield each name that a module gives, and its line; `each` is one unless it stands in a comprehension."""
    nodes = list(ast.walk(tree))
    in_comprehensions = {name for node in nodes if isinstance(node, ast.comprehension) for name in ast.walk(node.target)}
    for node in nodes:
        match node:
            case ast.Name(id="each", ctx=ast.Store()) if node in in_comprehensions:
                pass
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno


def forbidden(text):
    return [(name, line) for name, line in names(ast.parse(text)) if name.strip("_") in FORBIDDEN | {"each"}]


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
