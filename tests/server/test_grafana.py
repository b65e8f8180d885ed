"""The dashboard of estimates: each of its queries is answered by a real server, with the columns that its panels draw.

No Grafana can be installed here. So its queries are held to the documented contract of the data source Infinity instead.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from urllib.parse import urlencode

import pytest

from .conftest import READ
from .test_rows import day, filled, shop  # noqa: F401 - fixtures

DASHBOARD = json.loads((Path(__file__).parents[2] / "deploy" / "grafana-estimates.json").read_text("utf-8"))
VARIABLES = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"]}
QUERIES = {title: panel["targets"][0] for title, panel in PANELS.items()} | {
    f"variable {name}": each["query"]["infinityQuery"] for name, each in VARIABLES.items() if each["type"] == "query"
}
KNOWN = {
    "type": {"json"},
    "source": {"url"},
    "parser": {"backend"},
    "format": {"table"},
    "columns": {"string", "number", "timestamp"},
}
FIELDS = {"refId", "datasource", "url", "url_options", "root_selector", "filters", *KNOWN}


def interpolated(text, value):
    """Put values in the place of variables, as Grafana does."""
    arguments = {
        "${server}": "",
        "${metric}": "theme",
        "${value:doublequote}": json.dumps(value),
        "${__from:date:iso}": f"{day(8)}T11:12:13.456Z",
        "${__to:date:iso}": f"{day(0)}T11:12:13.456Z",
    }
    for name, instead in arguments.items():
        text = text.replace(name, instead)
    assert "$" not in text
    return text


@pytest.mark.parametrize("name", QUERIES)
def test_each_query_is_answered_with_its_columns(filled, name):  # noqa: F811
    """The server takes the parameters; rows are where the root selector says, with every column, of its type."""
    query = QUERIES[name]
    assert set(query) == FIELDS
    assert query["datasource"] == {"type": "yesoreyeram-infinity-datasource", "uid": "${datasource}"}
    assert all(query[member] in allowed for member, allowed in KNOWN.items() if member != "columns")
    assert set(query["url_options"]) == {"method", "data", "params"}
    parameters = {each["key"]: interpolated(each["value"], "=cmd()") for each in query["url_options"]["params"]}
    path = interpolated(query["url"], "")
    answer = filled.http.get(f"{path}?{urlencode(parameters)}", headers={"Authorization": f"Bearer {READ}"})
    assert answer.status_code == 200, answer.get_json()
    rows = answer.get_json()[query["root_selector"]]
    assert rows
    for column in query["columns"]:
        assert set(column) == {"selector", "text", "type"}
        assert column["type"] in KNOWN["columns"]
        results = [row[column["selector"]] for row in rows if row[column["selector"]] is not None]
        assert results
        if column["type"] == "timestamp":
            assert all(datetime.fromisoformat(each).tzinfo for each in results)
        elif column["type"] == "number":
            assert {type(each) for each in results} <= {int, float}


@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
def test_each_panel_draws_columns_that_it_asks_for(panel):
    query = {column["text"] for column in panel["targets"][0]["columns"]}
    overrides = panel["fieldConfig"]["overrides"]
    named = {each["matcher"]["options"] for each in overrides}
    named |= {each["value"] for one in overrides for each in one["properties"] if each["id"] == "custom.fillBelowTo"}
    assert named <= query
    assert ("time" in query) == (panel["type"] != "table")


def test_each_state_has_its_colour(filled):  # noqa: F811
    """What the timeline maps is what rows say."""
    (mapping,) = PANELS["What is published"]["fieldConfig"]["defaults"]["mappings"]
    query = {"metrics": "theme", "dimensions": "time,platform"}
    answer = filled.http.get(f"/api/v1/query?{urlencode(query)}", headers={"Authorization": f"Bearer {READ}"})
    states = {row["state"] for row in answer.get_json()["rows"]}
    assert "withheld" in states
    assert states <= set(mapping["options"]) == {"published", "withheld", "joined", "missing", "true", "false"}


def test_variables_are_declared():
    used = set(re.findall(r"\$\{(\w+)", json.dumps(DASHBOARD)))
    assert used - {"__from", "__to"} == set(VARIABLES)
