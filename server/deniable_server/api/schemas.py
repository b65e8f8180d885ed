"""JSON schemas of requests and answers. A struct that is read or written is described by its own schema."""

from __future__ import annotations

from typing import Any

import msgspec

from deniable_server.access.roles import ROLES
from deniable_server.api.batches import Batch

_PREFIX = "#/components/schemas/"


def ref(name: str) -> dict[str, str]:
    """Refer to a schema by its name."""
    return {"$ref": _PREFIX + name}


def _object(*, required: bool = True, more: bool = False, **members: Any) -> dict[str, Any]:
    """Describe an object. All members are required unless stated otherwise."""
    described: dict[str, Any] = {"type": "object", "properties": members, "additionalProperties": more}
    return described | ({"required": list(members)} if required else {})


def _or_null(kind: str) -> dict[str, Any]:
    return {"type": [kind, "null"]}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TEXT, _BOOLEAN = {"type": "string"}, {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 0}
_NUMBER = _or_null("number")
_DAY = {"type": ["string", "null"], "format": "date"}
_MOMENT = {"type": ["string", "null"], "format": "date-time"}
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_POSITIVE = {"type": "number", "minimum": 0}

_ANSWERED: dict[str, Any] = {
    "trial": _BOOLEAN,
    "metric": _TEXT,
    "version": _COUNT,
    "period": ref("Span"),
    "cells": _list(_TEXT),
    "epsilon": _POSITIVE,
    "spent": _POSITIVE,
    "left": _POSITIVE,
    "guarantee": _TEXT,
    "level": _SHARE,
}

_ANSWERS = {
    "Problem": _object(
        more=True,
        type=_TEXT,
        title=_TEXT,
        status={"type": "integer", "minimum": 400},
        code=_TEXT,
        detail=_TEXT,
        instance={"type": "string", "pattern": "^urn:uuid:[0-9a-f-]{36}$"},
    ),
    "Rejection": _object(group=_COUNT, code=_TEXT, count=_COUNT, detail=_TEXT),
    "Accepted": _object(accepted=_COUNT, rejected=_COUNT, duplicate=_BOOLEAN, errors=_list(ref("Rejection"))),
    "SignedRegistry": _object(format={"const": 1}, registry=_TEXT, signature=_TEXT),
    "Answered": {
        "anyOf": [
            _object(**_ANSWERED, count={"type": "integer"}, stderr=_POSITIVE, interval=_list({"type": "integer"})),
            _object(**_ANSWERED, most=_TEXT, margin=_POSITIVE),
        ]
    },
    "Budget": _object(
        app=_TEXT, trial=_BOOLEAN, epsilon=_POSITIVE, per_key=_POSITIVE, months=_list(_object(month=_TEXT, left=_POSITIVE))
    ),
    "Pipeline": _object(
        app=_TEXT,
        trial=_BOOLEAN,
        workers=_COUNT,
        backlog=_COUNT,
        pending=_COUNT,
        lag_seconds=_NUMBER,
        dead_letters=_COUNT,
        looked=_MOMENT,
    ),
    "Key": _object(
        id={"type": "string", "pattern": "^[0-9a-f]{16}$"},
        role={"enum": [*ROLES]},
        start=_TEXT,
        name=_TEXT,
        created=_DAY,
        used=_DAY,
    ),
    "Keys": _object(app=_TEXT, keys=_list(ref("Key"))),
    "Health": _object(status={"const": "ok"}),
    "Readiness": _object(
        status={"enum": ["ok", "unavailable"]},
        parts={"type": "object", "additionalProperties": _object(required=False, more=True, ok=_BOOLEAN)},
    ),
}


def components() -> dict[str, Any]:
    """Return all schemas by name."""
    # A server for uploads only answers none of these, so it does not import what decodes them.
    from deniable_aggregator.measure.comparison import Comparison  # noqa: PLC0415
    from deniable_aggregator.measure.live import Live, LiveMeasurement  # noqa: PLC0415
    from deniable_aggregator.measure.measurement import Measurement  # noqa: PLC0415
    from deniable_aggregator.measure.query import Query, Rows  # noqa: PLC0415
    from deniable_aggregator.measure.series.answer import Series  # noqa: PLC0415
    from deniable_server.api.query import Metrics  # noqa: PLC0415
    from deniable_server.api.questions import Withheld  # noqa: PLC0415

    structs = [Batch, Withheld, Metrics, Measurement, Series, Comparison, Query, Rows, Live, LiveMeasurement]
    _, described = msgspec.json.schema_components(structs, ref_template=_PREFIX + "{name}")
    return described | _ANSWERS


def parameters() -> list[dict[str, Any]]:
    """Return the parameters of an address that asks a query: lists joined by commas, and objects as JSON."""
    described = components()
    members, page = described["Query"]["properties"], described["Page"]["properties"]
    found = []
    for name, schema in (*members.items(), *page.items()):
        about: dict[str, Any] = {"in": "query", "name": name, "required": name in described["Query"]["required"]}
        if name in ("filters", "compare"):
            found.append(about | {"content": {"application/json": {"schema": schema}}})
        elif name != "pagination":
            found.append(about | {"schema": schema, "style": "form", "explode": False})
    return found
