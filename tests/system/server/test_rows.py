"""Rows as a spreadsheet reads them."""

from __future__ import annotations

import gzip
import os
import subprocess
from collections import defaultdict
from shutil import which
from xml.etree import ElementTree as ET

import pytest
from tests.server.test_rows import RANGE, filled, get, shop  # noqa: F401 - fixtures


@pytest.mark.skipif(not which("ssconvert"), reason="no Gnumeric on PATH")
def test_a_spreadsheet_opens_the_rows(filled, tmp_path):  # noqa: F811
    """Gnumeric has the same numbers and texts, nothing is a formula, and what looks like one keeps its apostrophe or is shown."""
    query = {"metrics": "theme,wait", "dimensions": "time,value", "date_range": "..".join(RANGE)}
    body = get(filled, **query).get_json()["rows"]
    arguments, opened = tmp_path / "rows.csv", tmp_path / "rows.gnumeric"
    arguments.write_bytes(get(filled, **query, format="csv").get_data())
    subprocess.run(
        ["ssconvert", arguments, opened], check=True, capture_output=True, timeout=600, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    cells = ET.fromstring(gzip.decompress(opened.read_bytes())).iter("{http://www.gnumeric.org/v10.dtd}Cell")
    table = defaultdict(dict)
    for cell in cells:
        assert cell.get("ValueType") or not (cell.text or "").startswith("="), cell.text
        table[int(cell.get("Row"))][int(cell.get("Col"))] = (cell.get("ValueType"), cell.text)
    names = [table[0][column][1] for column in sorted(table[0])]
    assert names == list(body[0])
    for number, row in enumerate(body, 1):
        for column, (name, value) in enumerate(row.items()):
            kind, text = table[number].get(column, (None, None))
            if isinstance(value, float):
                assert (kind, float(text)) == ("40", pytest.approx(value, rel=1e-12)), name
            elif isinstance(value, int) and not isinstance(value, bool):
                assert (kind, int(text)) == ("40", value), name
    assert any(text in {"=cmd()", "'=cmd()"} for row in table.values() for _, text in row.values())
