"""What the server writes to the audit log: which registry it serves, and who asked what of it and was answered or refused.

A query is logged when its answer is made and before it is sent; what cannot be logged is not answered (503). What a query is
logged with are names that the registry declares and codes of ours: whatever else it said is left out, also where it is refused
for that. Not logged are requests with no key that is known here, which are nobody's; those above a limit, so that nobody can fill
the log faster than the limits allow; and failures of the server, which tell nothing.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from flask import Flask, Response, current_app, g, request

from deniable.errors import ParameterError
from deniable.registry import period
from deniable_aggregator.audit.entry import LONGEST
from deniable_aggregator.process import logs
from deniable_aggregator.publish.breakdown import Breakdown
from deniable_aggregator.store import schema
from deniable_aggregator.store.errors import StoreError
from deniable_server.service import App, service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from deniable.declared import Declared

__all__ = ["kept", "register"]

log = logging.getLogger("deniable.audit")

_NAME = "deniable.trail"
_REFUSED, _LIMITED, _FAILED = 400, 429, 500


def kept(answer: Response) -> Response:
    """Log a query that is about to be answered or refused; an `after_request` of those who answer queries.

    Parameters
    ----------
    answer
        What is about to be sent.

    Returns
    -------
    Response
        The same; or, where it cannot be logged, what is said of a store that cannot be used.
    """
    actor, status = g.get("actor"), answer.status_code
    if actor is None or status == _LIMITED or status >= _FAILED:
        return answer
    app = service().apps[g.app]
    details = _details(app)
    event = "query.answered"
    if status >= _REFUSED:
        event = "query.refused"
        details["problem"] = logs.current().get("code", f"http_{status}")
    try:
        _publisher()()
        app.audit.append(event, actor, details)
    except StoreError as error:
        return current_app.make_response(current_app.handle_user_exception(error))
    return answer


def _details(app: App) -> dict[str, str | int]:
    """Return what a query asked, as far as it is something that can be asked."""
    told: dict[str, str | int] = {"by": "page" if request.blueprint == "dashboard" else "api"}
    told.update({name: g.asked[name] for name in ("question", "among", "epsilon", "spent") if name in g.get("asked", ())})
    declared = app.find((request.view_args or {}).get("id_", ""))
    if declared is None:
        return told
    told["metric"] = declared.metric.id
    if "@" in (request.view_args or {})["id_"]:
        told["version"] = declared.metric.version
    asked = g.get("asked") or request.args
    if _is_period(asked.get("period", ""), declared):
        told["period"] = asked["period"]
    with suppress(ParameterError):
        cell = Breakdown.of(app.registry, declared.metric).canonical(asked.get("segment", ""))
        if 0 < len(cell) <= LONGEST:
            told["segment"] = cell
    with suppress(KeyError, ValueError):
        told["level"] = str(float(asked["level"]))
    if asked.get("only") == "detected":
        told["only"] = "detected"
    return told


def _is_period(text: str, declared: Declared) -> bool:
    try:
        period.bounds(text, declared.metric.period)
    except ParameterError:
        return False
    return True


def register(flask: Flask, apps: Iterable[App]) -> None:
    """Log the registry of each app once for all processes, unless the last one logged is the same.

    Where the store is away it is logged later: before it is handed out, or a query is answered by it.

    Parameters
    ----------
    flask
        The server.
    apps
        Of it.
    """
    pending = {app.name: app for app in apps}

    def publish() -> None:
        for app in list(pending.values()):
            _publish(app)
            pending.pop(app.name, None)

    @flask.before_request
    def before() -> None:
        if request.endpoint == "ingest.registry":
            publish()

    flask.extensions[_NAME] = publish
    try:
        publish()
    except StoreError as error:
        log.warning("the audit log cannot be written yet (%s); until then no query is answered", type(error).__name__)


def _publisher() -> Callable[[], None]:
    return cast("Callable[[], None]", current_app.extensions[_NAME])


def _publish(app: App) -> None:
    audit, mark, digest = app.audit, schema.AUDIT_SERVED.of(app.name), app.registry.digest
    told: dict[str, str | int] = {"digest": digest, "metrics": len(app.versions)}
    if app.registry.revision:  # one that is not served to devices may have none
        told["revision"] = app.registry.revision
    last = audit.append(
        "registry.served",
        "server",
        told,
        along=audit.doing("SET", mark, digest),
        unless=lambda: app.store.get(schema.AUDIT_SERVED) == digest.encode(),
    )
    if last:
        log.info("the audit log of %s stands at %d:%s", app.name, last.number, last.hash)
