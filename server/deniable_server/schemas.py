"""Shapes of what is sent and answered, as JSON schemas. What is sent is described by the structs that read it."""

from __future__ import annotations

from typing import Any

import msgspec

from deniable_server.ingest import Batch

__all__ = ["components", "ref"]

_PREFIX = "#/components/schemas/"


def ref(name: str) -> dict[str, str]:
    """Refer to a schema by its name."""
    return {"$ref": _PREFIX + name}


def _object(*, required: bool = True, more: bool = False, **members: Any) -> dict[str, Any]:
    """Describe an object, all of whose members are always there unless said otherwise."""
    described: dict[str, Any] = {"type": "object", "properties": members, "additionalProperties": more}
    return described | ({"required": list(members)} if required else {})


def _or_null(kind: str) -> dict[str, Any]:
    return {"type": [kind, "null"]}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TEXT, _BOOLEAN = {"type": "string"}, {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 0}
_NUMBER = _or_null("number")  # null where nothing was counted
_INTERVAL = {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}
_MOMENT = {"type": ["string", "null"], "format": "date-time"}

_DESCRIPTION: dict[str, Any] = {
    "id": _TEXT,
    "type": _TEXT,
    "version": _COUNT,
    "description": _TEXT,
    "owner": _TEXT,
    "expires": {"type": ["string", "null"], "format": "date"},
    "period_length": {"enum": ["hour", "day", "week", "month"]},
    "domain_size": _or_null("integer"),
    "candidates": _or_null("integer"),
    "discover": _BOOLEAN,
    "mechanism": _TEXT,
    "epsilon": {"type": "number"},
    "epsilon_permanent": _NUMBER,
    "sample": {"type": "number"},
    "report_bytes": _COUNT,
    "n": _COUNT,
    "updated": _MOMENT,
}

_ESTIMATE: dict[str, Any] = {
    "value": {"type": ["string", "boolean", "number", "array", "null"]},
    "label": _TEXT,
    "frequency": _NUMBER,
    "count": _NUMBER,
    "stderr": _NUMBER,
    "interval": _INTERVAL,
    "simultaneous": _INTERVAL,
    "detected": _BOOLEAN,
}

_ANSWERS = {
    "Problem": _object(more=True, type=_TEXT, title=_TEXT, status={"type": "integer", "minimum": 400}, code=_TEXT, detail=_TEXT),
    "Rejection": _object(group=_COUNT, code=_TEXT, count=_COUNT, detail=_TEXT),
    "Accepted": _object(accepted=_COUNT, rejected=_COUNT, duplicate=_BOOLEAN, errors=_list(ref("Rejection"))),
    "SignedRegistry": _object(format={"const": 1}, registry=_TEXT, signature=_TEXT),
    "Description": _object(more=True, **_DESCRIPTION),
    "Metrics": _object(app=_TEXT, metrics=_list(ref("Description"))),
    "Estimate": _object(more=True, **_ESTIMATE),
    "Measured": _object(
        more=True,
        **_DESCRIPTION,
        level={"type": "number"},
        periods=_list(_TEXT),
        segments=_list(_TEXT),
        period=_or_null("string"),
        segment=_or_null("string"),
        detection_frequency=_NUMBER,
        unallocated=_object(frequency=_NUMBER, stderr=_NUMBER),
        association=_or_null("object"),
        estimates=_list(ref("Estimate")),
    ),
    "Alarm": _object(
        metric=_TEXT,
        test={"enum": ["weight", "row", "cell", "set", "value", "volume", "share"]},
        p_value=_NUMBER,
        period=_TEXT,
        segment=_or_null("string"),
        n=_COUNT,
        what=_TEXT,
        values=_list(_TEXT),
        influence={"type": "number"},
        since=_MOMENT,
    ),
    "Pipeline": _object(
        app=_TEXT,
        workers=_COUNT,
        backlog=_COUNT,
        pending=_COUNT,
        lag_seconds=_NUMBER,
        dead_letters=_COUNT,
        looked=_MOMENT,
        alarms=_list(ref("Alarm")),
    ),
    "Health": _object(status={"const": "ok"}),
    "Readiness": _object(
        status={"enum": ["ok", "unavailable"]},
        parts={"type": "object", "additionalProperties": _object(required=False, more=True, ok=_BOOLEAN)},
    ),
}


def components() -> dict[str, Any]:
    """Return all schemas by name."""
    _, read = msgspec.json.schema_components([Batch], ref_template=_PREFIX + "{name}")
    return read | _ANSWERS
