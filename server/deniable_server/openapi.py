"""``GET /openapi.json``: what this server can be asked and what it answers, for programs (OpenAPI 3.1).

`OPERATIONS` is the table; docs/http.md says the same for people, and a test holds them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any, Literal

from flask import Blueprint, jsonify
from flask import Response as FlaskResponse

import deniable
from deniable_server import schemas

__all__ = ["ANYWHERE", "KEYED", "OPERATIONS", "Operation", "blueprint", "document"]

blueprint = Blueprint("openapi", __name__)

Codes = dict[int, tuple[str, ...]]

ANYWHERE: Codes = {
    400: ("malformed_request",),
    404: ("not_found",),
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
"""Codes that any address may answer; 404 and 405 are those of no address."""

KEYED: Codes = {401: ("missing_key", "unknown_key"), 429: ("rate_limited",)}
"""Codes that any address may answer that asks for a key."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What can be asked at an address.

    Parameters
    ----------
    method, path
        As documented, parameters in braces.
    summary
        What it does, in a line.
    answers
        What it answers when all is well: by status the name of a schema, or None for no body.
    key
        The role of the key that it asks for.
    parameters
        OpenAPI parameters.
    body
        Name of the schema of what is sent.
    codes
        Its own codes by status, besides those of `ANYWHERE`.
    """

    method: Literal["get", "post"]
    path: str
    summary: str
    answers: dict[int, str | None]
    key: Literal["ingest", "read"] | None = None
    parameters: tuple[dict[str, Any], ...] = ()
    body: str | None = None
    codes: Codes | None = None


def _parameter(where: str, name: str, schema: dict[str, Any], description: str, *, required: bool = False) -> dict[str, Any]:
    return {"in": where, "name": name, "schema": schema, "description": description, "required": required}


_TEXT = {"type": "string"}

OPERATIONS = (
    Operation(
        "post",
        "/v1/reports",
        "Send a batch of reports",
        {202: "Accepted"},
        key="ingest",
        parameters=(
            _parameter(
                "header",
                "Idempotency-Key",
                # A header's blanks at either end are not part of it.
                {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"},
                "One of its own for each upload, e.g. a UUID; the same when the upload is repeated",
                required=True,
            ),
            _parameter("header", "Content-Encoding", {"enum": ["identity", "gzip"]}, "gzip: one member"),
        ),
        body="Batch",
        codes=KEYED
        | {
            400: ("idempotency_key", "gzip", "json", "batch_shape", "batch_format"),
            413: ("inflated_too_large",),
            415: ("media_type", "content_encoding"),
            422: ("idempotency_mismatch", "all_rejected"),
            503: ("backlog_full",),
        },
    ),
    Operation(
        "get",
        "/v1/registry",
        "Get the signed registry",
        {200: "SignedRegistry", 304: None},
        key="ingest",
        parameters=(_parameter("header", "If-None-Match", _TEXT, "The ETag of what is known"),),
        codes=KEYED | {404: ("no_signed_registry",)},
    ),
    Operation("get", "/api/v1/metrics", "List the metrics of the key's app", {200: "Metrics"}, key="read", codes=KEYED),
    Operation(
        "get",
        "/api/v1/metrics/{id}",
        "Estimate a metric",
        {200: "Measured"},
        key="read",
        parameters=(
            _parameter("path", "id", _TEXT, "As in the registry", required=True),
            _parameter("query", "period", _TEXT, "A collection window; default: everything counted"),
            _parameter("query", "segment", _TEXT, "A breakdown, e.g. platform=linux; default: all of them"),
            _parameter("query", "level", {"type": "number", "minimum": 0.5, "maximum": 0.999999}, "Confidence; default 0.95"),
            _parameter("query", "only", {"enum": ["detected"]}, "Leave out what was not detected"),
        ),
        codes=KEYED | {400: ("level", "only", "unknown_parameter"), 404: ("unknown_metric", "nothing_counted")},
    ),
    Operation("get", "/api/v1/pipeline", "Tell what waits, and what looks made up", {200: "Pipeline"}, key="read", codes=KEYED),
    Operation("get", "/healthz", "Tell that the process lives", {200: "Health"}),
    Operation("get", "/readyz", "Tell whether reports can be taken", {200: "Readiness", 503: "Readiness"}),
    Operation("get", "/openapi.json", "Get this document", {200: None}),
)


@blueprint.get("/openapi.json")
def openapi() -> FlaskResponse:
    """Hand out the document."""
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
                role: {"type": "http", "scheme": "bearer", "description": f"The app's {role} key"} for role in ("ingest", "read")
            },
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {"summary": operation.summary, "responses": {}}
    if operation.key:
        described["security"] = [{operation.key: []}]
    if operation.parameters:
        described["parameters"] = list(operation.parameters)
    if operation.body:
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schemas.ref(operation.body)}}}
    responses = described["responses"]
    for status, name in operation.answers.items():
        content = {"application/json": {"schema": schemas.ref(name) if name else {}}}
        responses[str(status)] = _response(status) | ({} if status == HTTPStatus.NOT_MODIFIED else {"content": content})
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
            response["headers"] = {
                "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds until it is worth trying"}
            }
    return described


def _response(status: int) -> dict[str, Any]:
    return {"description": HTTPStatus(status).phrase}
