"""The relay's web app: takes uploads, and says that it lives and what it has done. It writes no address anywhere."""

from __future__ import annotations

import hmac
import logging
import time
from collections import Counter
from datetime import UTC, datetime
from http import HTTPStatus
from sqlite3 import Error as FileError
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, jsonify, request
from werkzeug.exceptions import HTTPException
from werkzeug.middleware.proxy_fix import ProxyFix

from deniable.upload_rules import REFUSAL_TYPE, Refused, bearer, check_key, inflated
from deniable.wire import addresses
from deniable.wire.headers import NO_PAGE, SHARED, cross_origin
from deniable.wire.report import MAX_BODY_BYTES, MAX_INFLATED_BYTES
from deniable_relay import metrics

if TYPE_CHECKING:
    from deniable_relay.forwarding import Forwarder
    from deniable_relay.limits import Limits
    from deniable_relay.pools import Pools
    from deniable_relay.uploads import Reader

log = logging.getLogger("deniable.relay")

_RETRY_SECONDS = 60


class Web:
    """What the relay answers."""

    def __init__(
        self,
        key: str,  # the ingest key of devices, which is in every copy of the app
        reader: Reader,
        pools: Pools,
        forwarder: Forwarder,
        limits: Limits,
    ) -> None:
        self._key = key.encode()
        self._reader, self._pools, self._forwarder, self._limits = reader, pools, forwarder, limits
        self._waiting = metrics.Hourly()

    def take(self) -> tuple[dict[str, Any], HTTPStatus]:
        """Take an upload; answer once its reports are durable."""
        headers = request.headers
        if not hmac.compare_digest(bearer(headers.get("Authorization", ""), "the app's ingest key").encode(), self._key):
            raise Refused(401, "unknown_key", "this relay takes reports of another app; check the DSN")
        check_key(headers.get("Idempotency-Key", ""))
        encoding = headers.get("Content-Encoding", "identity")
        body = inflated(request.get_data(), headers.get("Content-Type", ""), encoding, MAX_INFLATED_BYTES)
        now = time.time()
        checked = self._reader.read(body, now)
        self._limits.take(request.remote_addr, now, [(crowd, len(sealed)) for crowd, sealed in checked.reports])
        self._pools.add(checked.reports)
        return checked.answer, HTTPStatus.ACCEPTED

    def live(self) -> dict[str, str]:
        """Say that the process answers."""
        return {"status": "ok"}

    def ready(self) -> dict[str, Any]:
        """Say that the file can be used, and why pools are held, if any are."""
        self._pools.totals()
        held: dict[str, dict[str, Any]] = {}
        for pool in sorted(self._forwarder.held.values(), key=lambda pool: pool.since):
            since = datetime.fromtimestamp(pool.since, UTC).isoformat(timespec="minutes")
            held.setdefault(pool.why, {"pools": 0, "since": since})["pools"] += 1
        return {"status": "ok", "held": held}

    def count(self) -> Response:
        """Say what was done, for Prometheus."""
        held = Counter(pool.why for pool in self._forwarder.held.values())
        totals = self._pools.totals()
        totals["waiting"] = self._waiting.seen(totals["waiting"], time.time())
        text = metrics.write(totals, held)
        return Response(text, content_type=metrics.CONTENT_TYPE)


def create_app(
    web: Web,
    proxies: int = 0,  # number of proxies in front whose X-Forwarded-For is believed
) -> Flask:
    """Make the relay's app."""
    flask = Flask("deniable_relay", static_folder=None)
    flask.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    flask.add_url_rule(addresses.REPORTS, view_func=web.take, methods=["POST"])
    for address, view in (("/healthz", web.live), ("/readyz", web.ready), ("/metrics", web.count)):
        flask.add_url_rule(address, view_func=view)
    flask.register_error_handler(Refused, _refuse)
    flask.register_error_handler(HTTPException, _refuse_request)
    flask.register_error_handler(FileError, _fail)
    flask.after_request(_protect)
    if proxies:
        flask.wsgi_app = ProxyFix(flask.wsgi_app, x_for=proxies, x_proto=0, x_host=0)  # type: ignore[method-assign]
    return flask


def _refuse(refusal: Refused) -> Response:
    answer = jsonify(refusal.document())
    answer.mimetype, answer.status_code = REFUSAL_TYPE, refusal.status
    if refusal.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        answer.headers["Retry-After"] = str(_RETRY_SECONDS)
    return answer


def _refuse_request(error: HTTPException) -> Response:
    status = HTTPStatus(error.code or 500)
    return _refuse(Refused(status, status.name.lower(), status.description or status.phrase))


def _fail(error: FileError) -> Response:
    log.error("the file of pools can not be used: %s", error)
    return _refuse(Refused(503, "no_room", "the relay cannot keep reports now; send them again later"))


def _protect(answer: Response) -> Response:
    answer.headers.extend(NO_PAGE)
    if request.path == addresses.REPORTS:  # web pages of any origin may send reports, and nothing else
        answer.headers.extend(cross_origin(SHARED[addresses.REPORTS], request.method, "*"))
    return answer
