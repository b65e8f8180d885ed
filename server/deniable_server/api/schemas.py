"""JSON schemas of requests and answers. A struct that is read or written is described by its own schema."""

from __future__ import annotations

from typing import Any

import msgspec

from deniable_server.access.roles import ROLES
from deniable_server.api.uploads.batches import Batch, PoolPart

_PREFIX = "#/components/schemas/"


def ref(name: str) -> dict[str, str]:
    """Refer to a schema by its name."""
    return {"$ref": _PREFIX + name}


def _object(*, required: bool = True, more: bool = False, **members: tuple[dict[str, Any], str]) -> dict[str, Any]:
    """Describe an object by the kind of each member, and what it says. All members are required unless stated otherwise."""
    properties = {name: kind | {"description": text} for name, (kind, text) in members.items()}
    described: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": more}
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

_APP = (_TEXT, "Name of the app")
_TRIAL = (_BOOLEAN, "Whether everything is published at once, however few reports there are")

_ANSWERED: dict[str, Any] = {
    "trial": _TRIAL,
    "metric": (_TEXT, "Id of the metric"),
    "version": (_COUNT, "Version of the metric"),
    "period": (ref("Span"), "The periods that the release covers"),
    "cells": (_list(_TEXT), "The cells that were asked about"),
    "figure": ({"enum": ["count", "sum", "mean", "value"]}, "What was asked of them"),
    "epsilon": (_POSITIVE, "What the question costs, in nats"),
    "spent": (_POSITIVE, "What this answer cost, in nats; 0 if the question was asked before"),
    "left": (_POSITIVE, "What the key may still spend on the month, in nats"),
    "guarantee": (_TEXT, "What the noise protects, in words"),
    "level": (_SHARE, "Probability that the interval, or the margin, holds"),
    "says": (_TEXT, "The answer in words"),
}

_BESIDE: dict[str, Any] = {
    "count": ({"type": "integer"}, "Number of reports with noise; unbiased, so it may be negative"),
    "count_interval": (_list({"type": "integer"}), "Least and greatest number that the cell may have, at the level"),
}

_ANSWERS = {
    "Problem": _object(
        more=True,
        type=(_TEXT, "A URI of the kind of problem"),
        title=(_TEXT, "What the status means, in a few words"),
        status=({"type": "integer", "minimum": 400}, "HTTP status"),
        code=(_TEXT, "Stable code, for programs"),
        detail=(_TEXT, "The rule, what broke it, and what to do, in words"),
        instance=(
            {"type": "string", "pattern": "^urn:uuid:[0-9a-f-]{36}$"},
            "Number of the request, which the server's log has, too",
        ),
    ),
    "Rejection": _object(
        group=(_COUNT, "Place of the group in the upload, from 0"),
        code=(_TEXT, "Stable code, for programs"),
        count=(_COUNT, "Reports of the group"),
        detail=(_TEXT, "The rule, and what broke it, in words"),
    ),
    "Accepted": _object(
        accepted=(_COUNT, "Reports that were accepted"),
        rejected=(_COUNT, "Reports that were refused"),
        duplicate=(_BOOLEAN, "Whether the upload was accepted before, under the same idempotency key"),
        errors=(_list(ref("Rejection")), "Why groups were refused"),
    ),
    "Taken": _object(
        accepted=(_COUNT, "Reports that can be counted"),
        new=(_COUNT, "Those of them that were not taken before"),
        rejected=(_COUNT, "Reports that were refused one by one"),
        errors=({"type": "object", "additionalProperties": _COUNT}, "How many were refused, by code"),
    ),
    "SignedRegistry": _object(
        required=False,
        format=({"const": 1}, "Number of the format"),
        restriction=(_TEXT, "What stays on, as canonical JSON"),
        valid_until=(
            {"type": "string", "format": "date"},
            "Last day on which a device that has not had it uses it; absent: there is no end",
        ),
        signature=(_TEXT, "Its signature by Ed25519, in base64"),
    )
    | {"required": ["format", "restriction", "signature"]},
    "Answered": {
        "anyOf": [
            _object(
                **_ANSWERED,
                count=({"type": "integer"}, "Number of reports with noise; unbiased, so it may be negative"),
                stderr=(_POSITIVE, "Standard error of the count"),
                interval=(_list({"type": "integer"}), "Least and greatest number that the cell may have, at the level"),
            ),
            _object(
                **_ANSWERED,
                most=(_TEXT, "The cell that has most reports, or nearly"),
                margin=(_POSITIVE, "At most so many reports fewer than the largest it has, at the level"),
            ),
            _object(
                **_ANSWERED,
                **_BESIDE,
                unit=(_TEXT, "Unit of the number"),
                estimate=(_NUMBER, "The sum or the mean; null: no report seems to be there, so there is no mean"),
                interval=(_list({"type": "number"}), "Least and greatest number that the answers may have, at the level"),
            ),
            _object(
                **_ANSWERED,
                **_BESIDE,
                value=(_TEXT, "The value that most answers have, or nearly"),
                behind=(_SHARE, "At most so far is its share of the answers behind the largest, at the level"),
            ),
        ]
    },
    "Budgets": _object(
        app=_APP,
        trial=_TRIAL,
        epsilon=(_POSITIVE, "What all keys together may spend on the reports of a month, in nats"),
        per_key=(_POSITIVE, "What one key may spend of it, in nats, unless it was made for less"),
        reason=({"type": ["string", "null"]}, "Why no question is answered now, and nothing can be spent; null if questions are"),
        own=(_POSITIVE, "What this key may spend of it, in nats: the least of both and of what it was made for"),
        months=(
            _list(
                _object(
                    month=(_TEXT, "The month of the reports"),
                    spent=(_POSITIVE, "What this key has spent on it, in nats"),
                    left=(_POSITIVE, "What this key may still spend on it, in nats"),
                    left_of_app=(_POSITIVE, "What all keys together may still spend on it, in nats"),
                )
            ),
            "Each month on whose reports any key has spent",
        ),
        keys=(
            {
                "type": ["array", "null"],
                "items": _object(
                    id=(_TEXT, "Id of the key, which may be revoked"),
                    month=(_TEXT, "The month of the reports"),
                    spent=(_POSITIVE, "What the key has spent on it, in nats"),
                ),
            },
            "What each key has spent; null unless this is an admin key",
        ),
    ),
    "Pipeline": _object(
        app=_APP,
        trial=_TRIAL,
        workers=(_COUNT, "Workers that live"),
        backlog=(_COUNT, "Batches that are not counted yet"),
        pending=(_COUNT, "Batches that a worker has in hand"),
        lag_seconds=(
            _NUMBER,
            "The longest that any batch waits; null: no worker came, ever or since the store's clock was set back",
        ),
        dead_letters=(_COUNT, "Batches that could not be counted"),
        looked=(_MOMENT, "When a worker last looked for made-up reports; null: never"),
    ),
    "Key": _object(
        id=({"type": "string", "pattern": "^[0-9a-f]{16}$"}, "Id of the key"),
        role=({"enum": [*ROLES]}, "What the key may do"),
        start=(_TEXT, "First characters of the key, by which people recognise it"),
        name=(_TEXT, "Label of the key"),
        epsilon=(_NUMBER, "What it may spend on a month at most, in nats; null: what the registry gives each key"),
        created=(_DAY, "Day on which it was made"),
        used=(_DAY, "Day on which it was last used; null: never"),
    ),
    "Keys": _object(app=_APP, keys=(_list(ref("Key")), "The app's keys in the store")),
    "Health": _object(status=({"const": "ok"}, "Always `ok`: the server answers")),
    "Readiness": _object(
        status=(
            {"enum": ["ok", "degraded", "unavailable"]},
            "Whether all parts are well; `degraded`: reports of some apps can be taken",
        ),
        parts=(
            {
                "type": "object",
                "additionalProperties": _object(required=False, more=True, ok=(_BOOLEAN, "Whether the part is well")),
            },
            "Each part that the server needs, by name",
        ),
    ),
}


def components() -> dict[str, Any]:
    """Return all schemas by name."""
    # A server for uploads only answers none of these, so it does not import what decodes them.
    from deniable_aggregator.answer.model.comparison import Comparison  # noqa: PLC0415
    from deniable_aggregator.answer.model.diagnosis import Diagnosis  # noqa: PLC0415
    from deniable_aggregator.answer.model.experiment import ExperimentAnswer  # noqa: PLC0415
    from deniable_aggregator.answer.model.live import Live, LiveMeasurement  # noqa: PLC0415
    from deniable_aggregator.answer.model.metric import Measurement  # noqa: PLC0415
    from deniable_aggregator.answer.model.query import Query  # noqa: PLC0415
    from deniable_aggregator.answer.model.rows import Rows  # noqa: PLC0415
    from deniable_aggregator.answer.model.series import Series  # noqa: PLC0415
    from deniable_server.api.answers.metrics import Metrics  # noqa: PLC0415
    from deniable_server.api.answers.questions import Withheld  # noqa: PLC0415

    structs = [
        Batch,
        PoolPart,
        Withheld,
        Metrics,
        Measurement,
        Diagnosis,
        Series,
        Comparison,
        ExperimentAnswer,
        Query,
        Rows,
        Live,
        LiveMeasurement,
    ]
    _, described = msgspec.json.schema_components(structs, ref_template=_PREFIX + "{name}")
    return described | _ANSWERS


def parameters() -> list[dict[str, Any]]:
    """Return the parameters of an address that asks a query: lists joined by commas, and objects as JSON."""
    described = components()
    members, page = described["Query"]["properties"], described["Page"]["properties"]
    described_parameters = []
    for name, schema in (*members.items(), *page.items()):
        about: dict[str, Any] = {"in": "query", "name": name, "required": name in described["Query"]["required"]}
        if name in ("filters", "compare"):
            described_parameters.append(about | {"content": {"application/json": {"schema": schema}}})
        elif name != "pagination":
            described_parameters.append(about | {"schema": schema, "style": "form", "explode": False})
    return described_parameters
