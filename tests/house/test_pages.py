"""What messages and files of a deployment name for their readers is there: pages of the site, and files of this tree."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = re.search(r'^html_baseurl = "(.+)"$', (DOCS / "conf.py").read_text("utf-8"), re.MULTILINE)[1]
SOURCES = [file for floor in ("client/deniable", "aggregator", "server") for file in (ROOT / floor).rglob("*.py")]
SHIPPED = [file for file in (ROOT / "deploy").rglob("*") if file.suffix not in (".md", ".json", ".pyc") and file.is_file()]
PAGE = re.compile(re.escape(SITE) + r"([\w/-]*?)/?(?:#([\w-]+))?(?![\w/#-])")
PATH = re.compile(r"\b(?:docs|deploy)/[\w./-]*\w")


def messages(file):
    """Return the texts of a module without its docstrings, which only developers read."""
    text = file.read_text("utf-8")
    if not any(each in text for each in (SITE, "docs/", "deploy/")):  # to parse all modules would take seconds
        return []
    nodes = list(ast.walk(ast.parse(text)))
    silent = {id(each.value) for each in nodes if isinstance(each, ast.Expr)}
    constants = (each for each in nodes if isinstance(each, ast.Constant) and id(each) not in silent)
    return [each.value for each in constants if isinstance(each.value, str)]


def headings(page):
    """Return the anchors of a page of the site; None if there is no such page."""
    files = [DOCS / f"{page}.md", DOCS / page / "index.md"]
    file = next((each for each in files if each.is_file()), None)
    if file is None:
        return None
    texts = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in texts}


def missing(text, *, installed):
    """Return what a text names that its reader does not find. Who has installed a wheel has no folder `docs`."""
    for page, anchor in PAGE.findall(text):
        anchors = headings(page) if page else set()
        if anchors is None or (anchor and anchor not in anchors):
            yield f"{SITE}{page}/#{anchor}"
    for path in PATH.findall(PAGE.sub("", text)):
        if (installed and path.startswith("docs/")) or not (
            (ROOT / path).exists() or path.startswith(("deploy/private", "deploy/relay/private"))
        ):
            yield path


def test_the_check_sees_what_is_missing():
    """A page, a heading, or a file that is not there; and a file of `docs` for somebody who has only the wheel."""
    good = f"see {SITE}how-to/operate/mend-the-store/#make-room, {SITE}how-to/operate/ and deploy/private/query.env"
    assert list(missing(good, installed=True)) == []
    texts = (f"{SITE}how-to/nothing/", f"{SITE}how-to/operate/watch/#nothing", "deploy/none.acl", "docs/how-to/operate/watch.md")
    for text in texts:
        assert len(list(missing(text, installed=True))) == 1, text
    assert list(missing("docs/how-to/operate/watch.md", installed=False)) == []


@pytest.mark.parametrize("installed", [True, False], ids=["messages", "deploy"])
def test_what_readers_are_told_to_read_is_there(installed):
    """In every message of the code, and in every file that an operator copies."""
    files = SOURCES if installed else SHIPPED
    texts = [(file, text) for file in files for text in (messages(file) if installed else [file.read_text("utf-8")])]
    assert any(SITE in text for _, text in texts)
    assert [(str(file.relative_to(ROOT)), each) for file, text in texts for each in missing(text, installed=installed)] == []


def test_units_name_the_site():
    """A unit is read where this tree is not."""
    units = [file for file in SHIPPED if file.suffix == ".service"]
    for unit in units:
        (page,) = re.findall(r"^Documentation=(.+)$", unit.read_text("utf-8"), re.MULTILINE)
        assert page.startswith(SITE)
    assert len(units) >= 2
