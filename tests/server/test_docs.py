"""The documentation is complete: whatever a server can say or be told is in it."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from deniable_aggregator.process import logs, variables
from deniable_server.access.roles import ROLES
from deniable_server.settings import DEFAULT_PROCESSES, PROCESSES, VARIABLES, Settings

ROOT = Path(__file__).parents[2]
DOCS = "\n".join(page.read_text("utf-8") for page in sorted((ROOT / "docs" / "reference" / "http").glob("*.md")))
SETTINGS = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
LOGS = (ROOT / "docs" / "reference" / "logs.md").read_text("utf-8")
RULES = ROOT / "client" / "deniable" / "upload_rules.py"
SOURCES = [path.read_text("utf-8") for path in [RULES, *(ROOT / "server" / "deniable_server").rglob("*.py")]]


def codes():
    results = set()
    for source in SOURCES:
        results |= set(re.findall(r'(?:Problem|Refused)\(\s*\d+,\s*"([a-z0-9_]+)"', source))
    layout = (ROOT / "client" / "deniable" / "wire" / "layout.py").read_text("utf-8")
    results |= set(re.findall(r'PayloadError\("([a-z_]+)"', layout))
    return sorted(results)


def test_codes_are_found():
    """The search for codes finds them: an empty list would make the next test pass for nothing."""
    assert {"unknown_key", "padding_bits", "backlog_full", "all_rejected"} <= set(codes())


@pytest.mark.parametrize("code", codes())
def test_every_error_code_is_documented(code):
    """Each code that a server can answer stands in docs/reference/http."""
    assert f"`{code}`" in DOCS


def test_every_endpoint_is_documented(served):
    """Each address of the API stands in docs/reference/http."""
    for rule in served.flask.url_map.iter_rules():
        if rule.endpoint.startswith(("ingest", "query", "rows", "health", "analysts", "live", "pipeline", "admin", "vitals")):
            assert rule.rule.replace("<id_>", "{id}") in DOCS


def test_every_variable_is_documented():
    """The tables of docs/reference/settings.md have each variable of servers and workers, with its default, and no others."""
    rows = re.findall(r"^\| `([A-Z_]+)` \| (?:`([^`]*)`)? ?\| \S", SETTINGS, re.MULTILINE)
    assert len(rows) == len(dict(rows))
    assert dict(rows) == variables.VARIABLES | VARIABLES | {PROCESSES: DEFAULT_PROCESSES}


def test_every_field_of_a_record_is_documented():
    """What a record of the log may carry stands in docs/reference/logs.md, in its example or its list."""
    for name in (*logs.FIELDS, *logs.LEVELS, *logs.FORMATS, "places", "detail"):
        assert f"`{name}`" in LOGS or f'"{name}":' in LOGS, name


def test_pages_that_are_made_and_committed(monkeypatch):
    """They are as the code makes them. If one differs, `python docs/texts.py` writes it anew."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import texts

    for name, text in texts.pages():
        assert (ROOT / "docs" / name).read_text("utf-8") == text, name


def test_access_is_documented():
    """Each role of a key, each user of the store that is shipped, and each limit stands in a page on access."""
    pages = (ROOT / "docs" / "how-to" / "operate" / f"{name}.md" for name in ("access", "store-users", "limits"))
    access = "\n".join(page.read_text("utf-8") for page in pages)
    users = [line.split()[1] for line in (ROOT / "deploy" / "users.acl").read_text("utf-8").splitlines()]
    limits = [f"DENIABLE_{field.name.upper()}" for field in fields(Settings) if field.name.startswith("rate_limit_")]
    for name in (*ROLES, *(user for user in users if user != "default"), *limits, "DENIABLE_SERVES", "DENIABLE_TRUSTED_PROXIES"):
        assert f"`{name}" in access, name
    for field in fields(Settings):
        if field.name.startswith("rate_limit_"):
            assert f"`{field.default}`" in access
