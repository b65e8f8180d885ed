"""Shapes of what is sent and answered, as JSON schemas. What is sent is described by the structs that read it."""

from __future__ import annotations

from typing import Any

import msgspec

from deniable_server.access.keys import ROLES
from deniable_server.api.ingest import Batch

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
_DAY = {"type": ["string", "null"], "format": "date"}
_MOMENT = {"type": ["string", "null"], "format": "date-time"}

_DESCRIPTION: dict[str, Any] = {
    "trial": _BOOLEAN,
    "id": _TEXT,
    "type": _TEXT,
    "version": _COUNT,
    "description": _TEXT,
    "owner": _TEXT,
    "expires": _DAY,
    "period_length": {"enum": ["hour", "day", "week", "month"]},
    "domain_size": _or_null("integer"),
    "candidates": _or_null("integer"),
    "discover": _BOOLEAN,
    "mechanism": _TEXT,
    "epsilon": {"type": "number"},
    "epsilon_permanent": _NUMBER,
    "sample": {"type": "number"},
    "min_reports": _COUNT,
    "next_release": _MOMENT,
    "report_bytes": _COUNT,
    "n": _COUNT,
    "updated": _MOMENT,
}

_REASONS = {"type": "object", "additionalProperties": _COUNT}  # reports by the code for which they were refused
_LIVE: dict[str, Any] = {name: each for name, each in _DESCRIPTION.items() if name != "updated"} | {
    "live": {"const": True},
    "unpublished": _COUNT,
    "refused": _REASONS,
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
    "Metrics": _object(app=_TEXT, trial=_BOOLEAN, metrics=_list(ref("Listed")), next=_or_null("string")),
    "Listed": _object(more=True, **_DESCRIPTION, versions=_list(ref("Version"))),
    "Span": _object(first=_or_null("string"), last=_TEXT),
    "Estimate": _object(more=True, **_ESTIMATE),
    "Measured": _object(
        more=True,
        **_DESCRIPTION,
        level={"type": "number"},
        periods=_list(ref("Span")),
        segments=_list(_TEXT),
        period=_or_null("string"),
        segment=_or_null("string"),
        included=_list(ref("Span")),
        closed=_BOOLEAN,
        warnings=_list(_TEXT),
        detection_frequency=_NUMBER,
        unallocated=_object(frequency=_NUMBER, stderr=_NUMBER),
        association=_or_null("object"),
        estimates=_list(ref("Estimate")),
        versions=_list(ref("Version")),
        merged={"anyOf": [ref("Merged"), {"type": "null"}]},
    ),
    "Version": _object(version=_COUNT, expires=_or_null("string"), n=_COUNT, updated=_MOMENT),
    "Merged": _object(
        versions=_list(_object(version=_COUNT, n=_COUNT, weight=_SHARE, included=_list(ref("Span")))),
        n=_COUNT,
        p_value=_NUMBER,
        estimates=_list(_object(**{name: each for name, each in _ESTIMATE.items() if name not in ("count", "detected")})),
    ),
    "Answered": {
        "anyOf": [
            _object(**_ANSWERED, count={"type": "integer"}, stderr=_POSITIVE, interval=_list({"type": "integer"})),
            _object(**_ANSWERED, most=_TEXT, margin=_POSITIVE),
        ]
    },
    "Budget": _object(
        app=_TEXT, trial=_BOOLEAN, epsilon=_POSITIVE, per_key=_POSITIVE, months=_list(_object(month=_TEXT, left=_POSITIVE))
    ),
    "Alarm": _object(
        metric=_TEXT,
        version=_COUNT,
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
        trial=_BOOLEAN,
        workers=_COUNT,
        backlog=_COUNT,
        pending=_COUNT,
        lag_seconds=_NUMBER,
        dead_letters=_COUNT,
        looked=_MOMENT,
    ),
    "LiveMetric": _object(more=True, **_LIVE),
    "Live": _object(
        app=_TEXT,
        trial=_BOOLEAN,
        live={"const": True},
        backlog=_COUNT,
        refused=_REASONS,
        metrics=_list(ref("LiveMetric")),
        alarms=_list(ref("Alarm")),
        faults={"type": "object", "additionalProperties": _TEXT},  # kinds of error by what fails
    ),
    "LiveMeasured": _object(
        more=True,
        **_LIVE,
        level={"type": "number"},
        period=_or_null("string"),
        periods=_list(_TEXT),
        counts=_list(_object(period=_TEXT, segment=_or_null("string"), n=_COUNT)),
        detection_frequency=_NUMBER,
        unallocated=_object(frequency=_NUMBER, stderr=_NUMBER),
        association=_or_null("object"),
        estimates=_list(ref("Estimate")),
        alarms=_list(ref("Alarm")),
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
    from deniable_server.api.questions import Withheld  # noqa: PLC0415 - a server that takes uploads only answers none

    _, read = msgspec.json.schema_components([Batch, Withheld], ref_template=_PREFIX + "{name}")
    return read | _ANSWERS
