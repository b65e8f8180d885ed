"""What the server writes to the audit log: the registries it serves, and all queries with their outcome.

A query is logged after its answer is made and before it is sent. If it cannot be logged, it is not answered (503). The log has
names that the registry declares, and codes of ours. Anything else in a query is left out, even if the query is refused because of
it. Some requests are not logged: those without a known key, those above a limit, which could fill the log, and failures of the
server.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from flask import Flask, Response, current_app, request

from deniable.errors import ParameterError
from deniable.registry import period
from deniable_aggregator.audit.entry import shortened
from deniable_aggregator.process import logs
from deniable_aggregator.publish.breakdown import Breakdown
from deniable_aggregator.store import schema
from deniable_aggregator.store.errors import StoreError
from deniable_server.http.visit import visit
from deniable_server.service import App, service

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deniable.declared import Declared
    from deniable_server.http.visit import Visit
    from deniable_server.service import Service

log = logging.getLogger("deniable.audit")

_NAME = "deniable.trail"
_REFUSED, _LIMITED, _FAILED = 400, 429, 500


def log_query(
    answer: Response,  # the answer that would be sent
) -> Response:
    """Log a query that was answered or refused, after the request; return its answer, or an error if it cannot be logged."""
    here, status = visit(), answer.status_code
    # Who has no known key, or is above a limit, could fill the log.
    if here.actor is None or status == _LIMITED or status >= _FAILED:
        return answer
    app = service().apps[here.app]
    details = _details(app, here)
    event = "query.answered"
    if status >= _REFUSED:
        event = "query.refused"
        details["problem"] = logs.current().get("code", f"http_{status}")
    try:
        _publisher(current_app)()  # so that the registry stands in the log before its first query
        app.audit.append(event, here.actor, details)
    except StoreError as error:
        return current_app.make_response(current_app.handle_user_exception(error))
    return answer


def _details(app: App, here: Visit) -> dict[str, str | int]:
    """Return the parameters of a query that have valid values."""
    details: dict[str, str | int] = {"by": "page" if request.blueprint == "dashboard" else "api"}
    details.update(
        {name: here.question[name] for name in ("question", "among", "figure", "epsilon", "spent") if name in here.question}
    )
    details.update(here.details)
    declared = app.find((request.view_args or {}).get("id_", ""))
    if declared is None:
        return details
    details["metric"] = declared.metric.id
    if "@" in (request.view_args or {})["id_"]:
        details["version"] = declared.metric.version
    parameters = here.question or request.args
    if _is_period(parameters.get("period", ""), declared):
        details["period"] = parameters["period"]
    if cell := _cell(app, parameters.get("segment", ""), declared):
        details["segment"] = cell
    for side in ("a", "b"):  # of a comparison
        named = parameters.get(side, "")
        if side_text := named if _is_side(named, declared) else _cell(app, named, declared):
            details[side] = side_text
    with suppress(KeyError, ValueError):
        details["level"] = str(float(parameters["level"]))
    if parameters.get("only") == "detected":
        details["only"] = "detected"
    if parameters.get("bands") == "strict":
        details["bands"] = "strict"
    return details


def _cell(app: App, text: str, declared: Declared) -> str:
    """Return a segment as the log has it; empty if it is none."""
    try:
        return shortened(Breakdown.of(app.registry, declared.metric).canonical(text))
    except ParameterError:
        return ""


def _is_period(text: str, declared: Declared) -> bool:
    try:
        period.bounds(text, declared.metric.period)
    except ParameterError:
        return False
    return True


def _is_side(text: str, declared: Declared) -> bool:
    # A server for uploads only has none.
    from deniable_aggregator.answer.question.side import side_of  # noqa: PLC0415
    from deniable_aggregator.answer.refusal import UnknownPeriod  # noqa: PLC0415

    try:
        side_of(text, declared.metric.period)
    except UnknownPeriod:
        return False
    return True


def register(
    flask: Flask,  # the server
    apps: Mapping[str, App],  # the apps it serves; an app is replaced when its registry is read anew
    also: Callable[[App], None] = lambda _: None,  # is called for each registry that is new to this process
) -> None:
    """Log the registry of each app once for all processes, unless the last one logged is the same."""
    logged: dict[str, App] = {}

    def publish() -> None:
        for name, app in apps.items():
            if logged.get(name) is not app:
                _publish(app)
                also(app)
                logged[name] = app

    @flask.before_request
    def before() -> None:
        if request.endpoint == "ingest.registry":
            publish()

    flask.extensions[_NAME] = publish
    log_registries(flask)


def log_registries(
    flask: Flask,  # the server
) -> None:
    """Log the registries that are new."""
    # If the store is unavailable, this happens later: before the registry is sent, or a query is answered with it.
    try:
        _publisher(flask)()
    except StoreError as error:
        cast("Service", flask.extensions["deniable"]).outage.failed("", error)


def _publisher(flask: Flask) -> Callable[[], None]:
    return cast("Callable[[], None]", flask.extensions[_NAME])


def _publish(app: App) -> None:
    audit, digests = app.audit, [app.declared.digest]
    details: dict[str, str | int] = {"digest": app.declared.digest, "metrics": len(app.source.versions)}
    if app.declared.revision:  # a registry that is not served to devices may have none
        details["revision"] = app.declared.revision
    if app.envelope:
        details["signed"] = app.envelope.digest
        digests.append(app.envelope.digest)
    mark = " ".join(digests)
    last = audit.append(
        "registry.served",
        "server",
        details,
        change=app.store.putting(schema.AUDIT_SERVED, mark),
        # A server without the signed one, such as one for queries, tells nothing new.
        unless=lambda: (app.store.get(schema.AUDIT_SERVED) or b"").startswith(mark.encode()),
    )
    if last:
        log.info("the audit log of %s stands at %d:%s", app.name, last.number, last.hash)
