"""A type answers for itself: nothing compares a metric's type by name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from deniable.registry.answers.types import TYPES

ROOT = Path(__file__).parents[2]
PACKAGES = ("client", "aggregator", "server")
COLUMNS = {"server/deniable_server/api/answers/export.py", "server/deniable_server/local/population.py"}
"""Files about types of columns, of an answer or of the demo's data. These are no metrics."""

_IN_TEMPLATES = re.compile(rf"""type\W{{0,3}}\s*(?:[!=]=|(?:not\s+)?in)\s*[(\[{{]*\s*["'](?:{"|".join(TYPES)})\b""")

_ASKS_A_TYPE = re.compile(r"""\.\s*type\b|\btype_|["']type["']""")


def is_type(node):
    """Whether an expression is the type of something: `.type`, `["type"]`, `.get("type")`, or a variable of that name."""
    match node:
        case ast.Attribute(attr="type") | ast.Name(id="type_"):
            return True
        case ast.Subscript(slice=ast.Constant(value="type")):
            return True
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value="type"), *_]):
            return True
    return False


def names_type(node):
    return any(isinstance(part, ast.Constant) and part.value in TYPES for part in ast.walk(node))


def compares(node):
    """Whether a node decides by the name of a type: it compares it, matches it, or looks it up in a table."""
    match node:
        case ast.Compare(left=left, comparators=others):
            sides = [left, *others]
            return any(map(is_type, sides)) and any(names_type(side) for side in sides if not is_type(side))
        case ast.Match(subject=subject, cases=cases):
            return is_type(subject) and any(names_type(each.pattern) for each in cases)
        case (
            ast.Subscript(value=ast.Dict(keys=keys), slice=key)
            | ast.Call(func=ast.Attribute(value=ast.Dict(keys=keys), attr="get"), args=[key, *_])
        ):
            return is_type(key) and any(names_type(each) for each in keys if each)
        case ast.Subscript(slice=key) | ast.Call(func=ast.Attribute(attr="get"), args=[key, *_]):
            return isinstance(key, ast.Attribute) and is_type(key)
    return False


def compares_types(name, text):
    if name.endswith(".py"):
        return bool(_ASKS_A_TYPE.search(text)) and any(map(compares, ast.walk(ast.parse(text))))
    return bool(_IN_TEMPLATES.search(text))


def comparing():
    """Return the files of the packages that compare a type by name."""
    files = [file for package in PACKAGES for ending in ("py", "html", "jinja") for file in (ROOT / package).rglob(f"*.{ending}")]
    assert len(files) > 300
    texts = {file.relative_to(ROOT).as_posix(): file.read_text("utf-8") for file in files}
    return {name for name, text in texts.items() if compares_types(name, text)}


def test_nothing_compares_types():
    """It asks `Metric.kind` instead."""
    assert comparing() == COLUMNS


@pytest.mark.parametrize(
    "line",
    [
        'metric.type == "set"',
        '"number" != declared.metric.type',
        'metric.type in ("number", "set")',
        'given["type"] == "boolean"',
        'table.get("type") not in {"string", "key"}',
        'type_ == "key"',
        '{"set": 1}[metric.type]',
        '{"set": 1, "product": 2}.get(metric.type, 0)',
        "_SIZES[metric.type]",
        "_SIZES.get(metric.type)",
        'match metric.type:\n    case "set" | "number":\n        pass',
    ],
)
def test_a_comparison_is_seen(line):
    assert compares_types("x.py", line)


@pytest.mark.parametrize(
    "line",
    [
        "metric.kind.options",
        'token.type == "table_open"',
        "about(metric.type)",
        'kind == "set"',
        '{"type": metric.type}',
        "found[type]",
    ],
)
def test_other_lines_are_not(line):
    assert not compares_types("x.py", line)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ('{% if m.type == "boolean" %}', True),
        ("{% elif m['type'] != 'number' %}", True),
        ('{% if m.type in ("set", "key") %}', True),
        ('{% if m.type == "table_open" %}', False),
        ("{% if m.kind.options %}", False),
    ],
)
def test_templates_are_read(text, seen):
    assert compares_types("x.html", text) is seen


NOT_TYPES = {
    "aggregator/deniable_aggregator/alarms/checks.py",
    "aggregator/deniable_aggregator/answer/model/live.py",
    "client/deniable/device/people.py",
    "client/deniable/registry/answers/domain.py",
}
"""Files in which "set" is the name of an alarm, a command of Redis, or what other words for a type mean."""


def test_few_files_name_the_type_set():
    """A type is named where it is declared and where metrics are made, and nowhere else."""
    texts = {file: file.read_text("utf-8") for package in PACKAGES for file in (ROOT / package).rglob("*.py")}
    files = {
        file.relative_to(ROOT).as_posix()
        for file, text in texts.items()
        if re.search(r"""["']set["']""", text)
        and any(isinstance(node, ast.Constant) and node.value == "set" for node in ast.walk(ast.parse(text)))
    }
    assert len(files - NOT_TYPES) <= 4, files
