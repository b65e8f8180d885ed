"""Keys of the store: one module writes them, and the users of the store are allowed what it lists."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from deniable_aggregator.store import schema

ROOT = Path(__file__).parents[2]
SCHEMA = Path(schema.__file__)
MODULES = [path for package in ("aggregator", "server") for path in sorted((ROOT / package).rglob("*.py")) if path != SCHEMA]
NAMES = sorted({word for kind in schema.ALL for word in re.findall(r":([a-z]+)", kind.name)})
WRITTEN = re.compile(rf"\}}:(?! )|(?<!:):(?:{'|'.join(NAMES)})(?![^:])")  # what follows a hash tag; a part of a key


def texts(source):
    """Go through the literals of a module, docstrings too; what an f-string puts in is a question mark."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "?" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def written(source):
    """List the literals of a module that make a key, or a part of one."""
    return [text for text in texts(source) if WRITTEN.search(text)]


@pytest.mark.parametrize(
    "source",
    [
        'f"{{{app}}}:reports"',
        '"{%s}:keys" % app',
        '"{deniable}:new:" + day',
        'f"{key}:used"',
        '":tally:" + name',
        '"""``{app}:x``"""',
    ],
)
def test_a_planted_key_is_seen(source):
    """Whatever way a key is written, it is found."""
    assert written(source)


def test_keys_are_written_in_one_module():
    """No other module has a text that makes a key of the store."""
    writers = {str(path.relative_to(ROOT)): written(path.read_text("utf-8")) for path in MODULES}
    assert {path: keys for path, keys in writers.items() if keys} == {}


def test_a_key_has_all_its_parts():
    """A key is not written with a part too few or too many."""
    assert schema.REPORTS.of("shop") == "{shop}:reports"
    assert schema.TALLY.of("shop", "ui.theme|1|*|%s") == "{shop}:tally:ui.theme|1|*|%s"
    assert schema.SOURCE.of("2026-11-21") == "{deniable}:source:2026-11-21"
    for kind, parts in ((schema.REPORTS, ()), (schema.REPORTS, ("shop", "x")), (schema.TALLY, ("shop",))):
        with pytest.raises(TypeError):
            kind.of(*parts)


def test_users_are_allowed_what_is_listed():
    """Each key that the shipped users may touch is of the schema, and each kind of the schema is for some of them."""
    rules = (ROOT / "deploy" / "users.acl").read_text("utf-8")
    allowed = {pattern.replace("{*}", "{?}") for pattern in re.findall(r"~(\S+?)[\s)]", rules)}
    keys = {kind: re.sub(r"\{[a-z]+\}", "{?}", kind.name) for kind in schema.ALL}
    assert {pattern for pattern in allowed if not any(fnmatchcase(key, pattern) for key in keys.values())} == set()
    assert [kind.name for kind, key in keys.items() if not any(fnmatchcase(key, pattern) for pattern in allowed)] == []
