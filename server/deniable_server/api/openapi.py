"""``GET /openapi.json``: the operations of this server and their answers, for programs (OpenAPI 3.1).

`OPERATIONS` is the table. docs/reference/http says the same for people, and a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any, Literal

from flask import Blueprint, jsonify
from flask import Response as FlaskResponse

import deniable
from deniable.wire import addresses
from deniable_server.access.roles import ROLES
from deniable_server.api import schemas
from deniable_server.api.answers.export import FORMATS
from deniable_server.api.uploads.batches import REJECTIONS
from deniable_server.http.trace import HEADER

blueprint = Blueprint("openapi", __name__)

Codes = dict[int, tuple[str, ...]]

ANYWHERE: Codes = {
    400: ("malformed_request", "repeated_parameter"),
    404: ("not_found", "serves_ingest"),
    405: ("method_not_allowed",),
    411: ("length_required",),
    413: ("body_too_large",),
    414: ("address_too_long",),
    417: ("expectation",),
    431: ("headers_too_large",),
    500: ("internal",),
    501: ("transfer_coding",),
    503: ("store_unavailable",),
}
"""Codes that every address may answer. 404 and 405 are for unknown addresses and methods."""

KEYED: Codes = {401: ("missing_key", "unknown_key"), 429: ("rate_limited",), 503: ("app_not_served",)}
"""Codes of every address that requires a key."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A method and an address."""

    # method, path: as documented, parameters in braces
    method: Literal["get", "post", "delete"]
    path: str
    summary: str  # what it does, in one line
    answers: dict[int, str | None]  # successful answers: name of the schema by status, or None for no body
    key: Literal["ingest", "relay", "read", "admin", "metrics"] | None = None  # role of the key that it requires
    parameters: tuple[dict[str, Any], ...] = ()  # OpenAPI parameters
    body: str | None = None  # name of the schema of the request's body
    codes: Codes | None = None  # codes of its own by status, besides `ANYWHERE`
    media: tuple[str, ...] = ("application/json",)  # Media types of successful answers. A schema is of the first.
    asks: bool = False  # whether the members of a query are also parameters of the address


def _parameter(where: str, name: str, schema: dict[str, Any], description: str, *, required: bool = False) -> dict[str, Any]:
    return {"in": where, "name": name, "schema": schema, "description": description, "required": required}


_TEXT = {"type": "string"}

_ID = _parameter("path", "id", _TEXT, "As in the registry; or metric@version, for a version other than the latest", required=True)

_LEVEL = _parameter("query", "level", {"type": "number", "minimum": 0.5, "maximum": 0.999999}, "Confidence; default 0.95")

_DATE_RANGE = _parameter(
    "query",
    "date_range",
    _TEXT,
    "The last days, such as `90d`; a day, week or month, such as `2026-W47`; or two joined by `..`; default: all published",
)
_FORMAT = _parameter("query", "format", {"enum": [*FORMATS]}, "As what rows are written; default: as Accept asks, or json")

_ROWS: dict[str, Any] = {
    "answers": {200: "Rows"},
    "key": "read",
    "parameters": (_FORMAT,),
    "codes": KEYED
    | {
        400: (
            *("date_range", "dimension", "value", "filter", "format", "incomparable"),
            *("json", "query_conflict", "query_shape", "query_too_large", "unknown_parameter"),
        ),
        404: ("unknown_metric", "unknown_version"),
        501: ("no_export",),
    },
    "media": tuple(each.media for each in FORMATS.values()),
}

_OWNING: Codes = KEYED | {403: ("admin_only",)}
"""Codes of operations for admin keys."""

_ENCODING = _parameter("header", "Content-Encoding", {"enum": ["identity", "gzip"]}, "gzip: one member")
_BODY: Codes = KEYED | {403: ("other_app",), 413: ("inflated_too_large",), 415: ("media_type", "content_encoding")}
_READ = ("gzip", "json", "batch_shape", "batch_format")
_FULL = ("app_not_served", "backlog_full", "store_full", "serves_query")
_OF_GROUPS = tuple(code for code in REJECTIONS if code not in ("relay_only", "index_range", "row_range", "padding_bits"))

OPERATIONS = (
    Operation(
        "post",
        addresses.REPORTS,
        "Send a batch of reports",
        {202: "Accepted"},
        key="ingest",
        parameters=(
            _parameter(
                "header",
                "Idempotency-Key",
                # White space at the ends of a header does not belong to it.
                {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"},
                "Unique for each upload, e.g. a UUID; the same when the upload is repeated",
                required=True,
            ),
            _ENCODING,
        ),
        body="Batch",
        codes=_BODY | {400: ("idempotency_key", *_READ), 422: ("idempotency_mismatch", "all_rejected"), 503: _FULL},
    ),
    Operation(
        "post",
        addresses.POOLS,
        "Send a part of a pool of sealed reports, as a relay",
        {202: "Taken"},
        key="relay",
        parameters=(_ENCODING,),
        body="PoolPart",
        codes=_BODY | {400: (*_READ, "no_relay", *_OF_GROUPS), 422: ("pool_too_small",), 503: (*_FULL, "no_sealing_key")},
    ),
    Operation(
        "get",
        addresses.REGISTRY,
        "Get the signed registry",
        {200: "SignedRegistry"},
        key="ingest",
        codes=KEYED | {404: ("no_signed_registry",), 503: ("app_not_served", "serves_query")},
    ),
    Operation(
        "get", addresses.SCRIPT, "Get the SDK for web pages, as a script", {200: None, 304: None}, media=("text/javascript",)
    ),
    Operation(
        "get",
        "/api/v1/metrics",
        "List the metrics of the key's app",
        {200: "Metrics"},
        key="read",
        parameters=(
            _parameter("query", "limit", {"type": "integer", "minimum": 1, "maximum": 100}, "Most metrics; default 100"),
            _parameter("query", "after", _TEXT, "The metric to continue after: `next` of the previous answer"),
        ),
        codes=KEYED | {400: ("after", "limit", "unknown_parameter")},
    ),
    Operation(
        "get",
        "/api/v1/metrics/{id}",
        "Estimate a metric",
        {200: "Measurement", 304: None},
        key="read",
        parameters=(
            _ID,
            _DATE_RANGE,
            _parameter("query", "period", _TEXT, "A collection window; default: all that were published"),
            _parameter("query", "segment", _TEXT, "A cell, e.g. platform=linux; default: all reports"),
            _parameter("query", "value", _TEXT, "Of a number a range whose share is asked for, e.g. 200..500, 200.. or ..500"),
            _LEVEL,
            _parameter("query", "only", {"enum": ["detected"]}, "Leave out what was not detected"),
            _parameter("query", "bands", {"enum": ["strict"]}, "Bands of quantiles that hold without any approximation"),
        ),
        codes=KEYED
        | {
            400: ("bands", "date_range", "level", "only", "period", "segment", "unknown_parameter", "value"),
            403: ("withheld",),
            404: ("unknown_metric", "unknown_version"),
        },
    ),
    Operation(
        "get",
        "/api/v1/metrics/{id}/diagnosis",
        "Say why nothing is published of a metric",
        {200: "Diagnosis"},
        key="read",
        parameters=(_ID,),
        codes=KEYED | {400: ("unknown_parameter",), 404: ("unknown_metric", "unknown_version")},
    ),
    Operation(
        "get",
        "/api/v1/metrics/{id}/series",
        "Estimate a metric period by period, and what changed",
        {200: "Series", 304: None},
        key="read",
        parameters=(
            _ID,
            _DATE_RANGE,
            _parameter("query", "segment", _TEXT, "A cell, e.g. platform=linux; default: all reports"),
            _LEVEL,
        ),
        codes=KEYED
        | {
            400: ("date_range", "level", "segment", "unknown_parameter"),
            403: ("withheld",),
            404: ("unknown_metric", "unknown_version"),
        },
    ),
    Operation(
        "get",
        "/api/v1/metrics/{id}/compare",
        "Compare two periods or two segments of a metric",
        {200: "Comparison", 304: None},
        key="read",
        parameters=(
            _ID,
            _parameter(
                "query",
                "a",
                _TEXT,
                "A period, a longer time such as `2026-10` or `2026-10-01..2026-10-31`, or a segment",
                required=True,
            ),
            _parameter("query", "b", _TEXT, "What to compare it with: another one", required=True),
            _parameter("query", "period", _TEXT, "Of two segments: the collection window; default: all that were published"),
            _parameter("query", "segment", _TEXT, "Of two periods: the cell; default: all reports"),
            _LEVEL,
        ),
        codes=KEYED
        | {
            400: ("incomparable", "level", "period", "segment", "unknown_parameter"),
            403: ("withheld",),
            404: ("unknown_metric", "unknown_version"),
        },
    ),
    Operation(
        "get",
        "/api/v1/metrics/{id}/experiment",
        "Compare the arms of an experiment with its base, as reports came in",
        {200: "ExperimentAnswer", 304: None},
        key="read",
        parameters=(
            _ID,
            _parameter("query", "segment", _TEXT, "Whose values are the arms; default: the metric's first experiment"),
            _parameter("query", "value", _TEXT, "The answer to follow; default: the one that differs most clearly"),
            _LEVEL,
        ),
        codes=KEYED
        | {
            400: ("incomparable", "level", "unknown_parameter"),
            404: ("unknown_metric", "unknown_version"),
        },
    ),
    Operation(
        "post",
        "/api/v1/query",
        "Ask about several metrics at once, for flat rows",
        **_ROWS | {"body": "Query", "codes": _ROWS["codes"] | {415: ("media_type",)}},
    ),
    Operation(
        "get",
        "/api/v1/query",
        "Ask the same in the address",
        **_ROWS | {"answers": {200: "Rows", 304: None}, "asks": True},
    ),
    Operation(
        "post",
        "/api/v1/metrics/{id}/withheld",
        "Ask how many reports a withheld cell has, which of several has most, or a figure of its answers, with central noise",
        {200: "Answered"},
        key="read",
        parameters=(_ID,),
        body="Withheld",
        codes=KEYED
        | {
            400: ("json", "question_shape", "epsilon", "figure", "cells", "segment", "period"),
            403: ("budget_spent",),
            404: ("unknown_metric", "unknown_version", "nothing_published", "not_kept"),
            409: ("published",),
            415: ("media_type",),
            501: ("no_questions",),
        },
    ),
    Operation("get", "/api/v1/budgets", "Get what keys may still spend", {200: "Budgets"}, key="read", codes=KEYED),
    Operation(
        "get",
        "/api/v1/live",
        "Get what is counted, published or not, and alarms",
        {200: "Live"},
        key="admin",
        codes=_OWNING | {400: ("unknown_parameter",)},
    ),
    Operation(
        "get",
        "/api/v1/live/{id}",
        "Estimate a metric from what is counted, published or not",
        {200: "LiveMeasurement"},
        key="admin",
        parameters=(
            _ID,
            _parameter("query", "period", _TEXT, "A collection window; default: all"),
            _LEVEL,
        ),
        codes=_OWNING | {400: ("level", "period", "unknown_parameter"), 404: ("unknown_metric", "unknown_version")},
    ),
    Operation("get", "/api/v1/pipeline", "Get the state of the pipeline", {200: "Pipeline"}, key="read", codes=KEYED),
    Operation("get", "/api/v1/keys", "List the keys of the key's app", {200: "Keys"}, key="admin", codes=_OWNING),
    Operation(
        "delete",
        "/api/v1/keys/{id}",
        "Revoke a key",
        {204: None},
        key="admin",
        parameters=(_parameter("path", "id", {"type": "string", "pattern": "^[0-9a-f]{16}$"}, "As listed", required=True),),
        codes=_OWNING | {404: ("no_such_key",)},
    ),
    Operation("get", "/healthz", "Check that the process lives", {200: "Health"}),
    Operation("get", "/readyz", "Check whether reports can be taken", {200: "Readiness", 503: "Readiness"}),
    Operation(
        "get",
        "/metrics",
        "Get the numbers of the server, for Prometheus",
        {200: None},
        key="metrics",
        codes=KEYED | {404: ("not_found",)},
        media=("text/plain", "application/openmetrics-text"),
    ),
    Operation("get", "/openapi.json", "Get this document", {200: None}),
)


_EMPTY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


@blueprint.get("/openapi.json")
def openapi() -> FlaskResponse:
    """Send the document."""
    return jsonify(document())


@cache
def document() -> dict[str, Any]:
    """Make the document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "deniable",
            "version": deniable.__version__,
            "description": "Takes randomised reports, and answers with estimates of what they say together.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.components(),
            "securitySchemes": {
                role: {"type": "http", "scheme": "bearer", "description": f"{whose} {role} key"}
                for role, whose in (*((role, "The app's") for role in ROLES), ("metrics", "The server's"))
            },
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {"summary": operation.summary, "responses": {}}
    if operation.key:
        described["security"] = [{operation.key: []}]
    members = schemas.parameters() if operation.asks else []
    if operation.parameters or members:
        described["parameters"] = [*operation.parameters, *members]
    if operation.body:
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schemas.ref(operation.body)}}}
    responses = described["responses"]
    for status, name in operation.answers.items():
        first, *others = operation.media
        content = {first: {"schema": schemas.ref(name) if name else {}}, **{media: {"schema": {}} for media in others}}
        responses[str(status)] = _response(status) | ({} if status in _EMPTY else {"content": content})
    refusals = {status: (operation.codes or {}).get(status, ()) for status in {*(operation.codes or {}), *ANYWHERE}}
    for status, own in sorted(refusals.items()):
        everybodys = () if status in (404, 405) else ANYWHERE.get(status, ())
        if not own + everybodys:
            continue
        response = responses.setdefault(str(status), _response(status))
        response.setdefault("content", {})["application/problem+json"] = {
            "schema": {"allOf": [schemas.ref("Problem"), {"properties": {"code": {"enum": [*own, *everybodys]}}}]}
        }
        if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            response["headers"] |= {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds until the next try"}}
    return described


def _response(status: int) -> dict[str, Any]:
    number = {"schema": {"type": "string", "format": "uuid"}, "description": "Made by the server; also in its log"}
    return {"description": HTTPStatus(status).phrase, "headers": {HEADER: number}}
