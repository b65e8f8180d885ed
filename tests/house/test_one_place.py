"""What depends on a mechanism is asked of the mechanism, or of its family: no list of names, hardly a test of its class."""

from __future__ import annotations

import ast
import re
from itertools import islice
from pathlib import Path

from deniable import mechanisms
from deniable.mechanisms.base import Mechanism

ROOT = Path(__file__).parents[2]
MOST = 25
"""Tests of a mechanism's class that product code may have outside of the mechanisms and their families."""
HOME = "client/deniable/mechanisms/"


def product(pattern, times=1):
    """Yield the path and the syntax tree of each module of product code that matches a pattern so many times."""
    for folder in ("client", "aggregator", "server"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text("utf-8")
            if sum(1 for _ in islice(re.finditer(pattern, text), times)) == times:
                yield path.relative_to(ROOT).as_posix(), ast.parse(text)


def classes():
    """Return the names of all classes of mechanisms."""
    results = {"Mechanism"}
    trees = [ast.parse(path.read_text("utf-8")) for path in (ROOT / HOME).rglob("*.py")]
    definitions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    while True:  # until no class has one of them as its base
        more = {node.name for node in definitions if results & {base.id for base in node.bases if isinstance(base, ast.Name)}}
        if more <= results:
            return results
        results |= more


def questions(tree, names):
    """Yield the line of each test of a mechanism's class in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            query = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
            yield from [node.lineno] * bool(query & names)


def test_hardly_anything_asks_for_the_class_of_a_mechanism():
    """A new mechanism answers for itself. Where its class is asked for, somebody must think of it."""
    names = classes()
    assert {"Grr", "Window", "Hcms", "LOsue", "FrequencyOracle", "Permanent", "PrefixTree"} <= names
    families = "aggregator/deniable_aggregator/decode/families/"
    asking = rf"isinstance\((?s:.)*\b(?:{'|'.join(names)})\b"
    trees = ((path, tree) for path, tree in product(asking) if not path.startswith((HOME, families)))
    lines = [f"{path}:{line}" for path, tree in trees for line in questions(tree, names)]
    assert len(lines) <= MOST, lines


def test_no_list_of_mechanisms_stands_elsewhere():
    """Three names in one list, set, tuple or table are knowledge of which mechanisms there are."""
    names = {*mechanisms.provable(), "google_rappor", "pem", "tree_hist"}
    assert len(names) == 25
    results = []
    for path, tree in product(rf"""["'](?:{"|".join(names)})["']""", times=3):
        if path == f"{HOME}__init__.py":
            continue
        for node in ast.walk(tree):
            members = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
            if len(names & {member.value for member in members if isinstance(member, ast.Constant)}) > 2:
                results.append(f"{path}:{node.lineno}")
    assert results == []


def test_every_mechanism_has_a_family():
    """Nobody meets a mechanism whose tally nothing reads."""
    from deniable_aggregator.decode.families import family_of

    sizes = {"coin": 2, "binary": 2, "sampled_pair": 4, "sampled_options": 4}
    for name in (*mechanisms.provable(), "pem", "tree_hist"):
        answer = mechanisms.make(name, domain_size=sizes.get(name, 8), epsilon=2)
        assert isinstance(answer, Mechanism)
        assert family_of(answer).mechanism is answer
