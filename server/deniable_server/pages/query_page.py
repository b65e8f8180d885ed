"""The page that writes what a metric's page shows as a query: for Python, the command and curl. No key is in it."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from flask import request, url_for

from deniable_aggregator.answer.question import date_range

if TYPE_CHECKING:
    from deniable_server.pages.parts.metric_data import MetricData

_KEY = "rk_..."
_JOINTS = {"date_range": date_range.JOINT}


def of_shell(data: MetricData) -> str:
    """Write the query for curl."""
    members = {
        name: json.dumps(value) if name == "filters" else _JOINTS.get(name, ",").join(value) if isinstance(value, list) else value
        for name, value in data.query.items()
    }
    # Whatever a shell would read is encoded.
    address = f"{_server()}{url_for('rows.get')}?{urlencode(members, safe=',:')}"
    return f'curl -H "Authorization: Bearer {_KEY}" \\\n  "{address}"'


def of_command(data: MetricData) -> str:
    """Write the query for `deniable query`."""
    query = data.query
    words = ["deniable", "query", *query["metrics"]]
    for _, name, values in query.get("filters", ()):
        words += [
            word for value in values for word in (("--value", value) if name == "value" else ("--where", f"{name}={value}"))
        ]
    if days := query.get("date_range"):
        words += ["--range", date_range.JOINT.join(days)]
    if level := query.get("level"):
        words += ["--level", f"{level:g}"]
    return f"export DENIABLE_URL={_server()} DENIABLE_READ_KEY={_KEY}\n{shlex.join(words)}"


def of_python(data: MetricData) -> str:
    """Write the query for `deniable_query`."""
    query = data.query
    steps = [f".metric({_listed(query['metrics'])})"]
    if filters := query.get("filters"):
        steps.append(f".where(**{json.dumps({name: values if values[1:] else values[0] for _, name, values in filters})})")
    if days := query.get("date_range"):
        steps.append(f".between({_listed(days)})")
    if level := query.get("level"):
        steps.append(f".level({level:g})")
    call = "\n    ".join([f"Query({_listed([_server(), _KEY])})", *steps, ".rows()"])
    return f"from deniable_query import Query\n\nrows = (\n    {call}\n)"


def _listed(texts: list[str]) -> str:
    return ", ".join(map(json.dumps, texts))


def _server() -> str:
    return f"{request.scheme}://{request.host}"
