"""The tables of docs/reference/wire, by the marker above each."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = "\n".join(page.read_text("utf-8") for page in (Path(__file__).parents[2] / "docs" / "reference" / "wire").glob("*.md"))


def cells(line):
    return [cell.strip().strip("`") for cell in line.strip().removeprefix("| ").removesuffix(" |").split(" | ")]


def tables(marker):
    """Read the tables below a marker, up to the next paragraph."""
    block = re.search(rf"<!-- {marker} -->\n((?:\|.*\n|\n(?=\|))+)", PAGE)
    assert block, marker
    contents = []
    for written in block[1].strip().split("\n\n"):
        head, _, *lines = written.splitlines()
        contents.append([dict(zip(cells(head), cells(line), strict=True)) for line in lines])
    return contents


def rows(marker):
    (table,) = tables(marker)
    assert table, marker
    return table


def block(marker):
    """Read the one line of JSON below a marker, which the page breaks before each group."""
    return re.search(rf"<!-- {marker} -->\n```json\n(.*?)\n```", PAGE, re.DOTALL)[1].replace("\n", "")
