"""Every command line that a document shows, or the product advises, is one that the command reads."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from functools import cache
from pathlib import Path

from deniable.commands.catalogue import CATALOGUE
from deniable.commands.parser import Parser

ROOT = Path(__file__).parents[2]
COMMANDS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]["deniable.commands"]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").glob("*.md")])
SOURCES = sorted(path for folder in ("client", "server", "aggregator") for path in (ROOT / folder).rglob("*.py"))
NO_COMMANDS = {"audit 1", "restriction 1", "restriction 1 until 2026-12-31", "LABEL r"}  # what files and keys of ours begin with
STANDS_FOR = {"N:HASH": f"120:{'0f' * 32}"}
SHOWN = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINE = re.compile(r"^(?:\S*/|\$ |docker compose .* exec \S+ )?deniable (?!\[)(.*)")
SPAN = re.compile(r"`deniable ([^`]*)(?:`|$)")


@cache
def parser(name):
    module, _, function = COMMANDS[name].partition(":")
    result = Parser(prog=f"deniable {name}")
    getattr(__import__(module, fromlist=[function]), function)(result)
    result.complete(CATALOGUE[name].examples)
    return result


def blocks():
    """Find the command lines in the shell blocks of documents."""
    for path in DOCUMENTS:
        for block in SHOWN.findall(path.read_text("utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                if match := LINE.match(line.strip()):
                    yield f"{path.name}: {match[1]}"


@cache
def named():
    """Find the commands that documents name amid a sentence, and those in what the product says."""
    return tuple(line for line in spans() if line.partition(": ")[2] not in NO_COMMANDS)


def spans():
    for path in DOCUMENTS:
        if path.name != "CHANGELOG.md":  # which tells of what was
            yield from (f"{path.name}: {span}" for span in SPAN.findall(re.sub(r"\s+", " ", path.read_text("utf-8"))))
    for path in SOURCES:
        text = path.read_text("utf-8")
        if "`deniable " not in text:
            continue
        tree = ast.parse(text)
        notes = {id(node.body[0].value) for node in ast.walk(tree) if hasattr(node, "body") and is_note(node)}
        for node in ast.walk(tree):
            if id(node) not in notes and isinstance(node, ast.JoinedStr | ast.Constant):
                yield from (f"{path.name}: {span}" for span in SPAN.findall(text_of(node)))


def is_note(node):
    return isinstance(node.body, list) and node.body and isinstance(node.body[0], ast.Expr)


def text_of(node):
    if isinstance(node, ast.JoinedStr):
        return "".join(each.value if isinstance(each, ast.Constant) else "x" for each in node.values)
    return node.value if isinstance(node.value, str) else ""


def test_what_a_document_shows_is_read(capsys):
    """Each line of a shell block is read to its end by the command's own parser."""
    faults = []
    for line in sorted(set(blocks())):
        words = [STANDS_FOR.get(word, word) for word in shlex.split(line.partition(": ")[2], comments=True)]
        try:
            if words != ["--version"]:
                parser(words[0]).parse_args(words[1:])
        except (SystemExit, KeyError):
            faults.append((line, capsys.readouterr().err))
    assert not faults


def test_what_is_named_exists():
    """Each command, action and option that is named amid a sentence exists."""
    assert not [(line, word) for line in sorted(set(named())) if (word := unknown(line))]


def unknown(line):
    """Find the first word of a command line that does not exist."""
    words = [word.rstrip(".,;:") for word in line.partition(": ")[2].replace("[", "").replace("]", "").split()]
    if words[0] not in COMMANDS:
        return words[0]
    known = parser(words[0])
    for word in words[1:]:
        if word.startswith("--") and word not in known._option_string_actions:
            return word
        if known._actions_below and word in known._actions_below:
            known = known._actions_below[word]
    return None


def test_commands_are_found():
    """The search finds them: an empty list would make the tests above pass for nothing."""
    assert any("keys create --app" in line for line in blocks())
    assert any(line.startswith("pipeline.py: keys create --app x --role") for line in named())
    assert len(set(blocks())) > 20
    assert len(set(named())) > 20
