"""The door: plain uploads are answered below Flask, several at a time.

Flask answers everything else, and whatever is refused. Both ways ask the same functions, and a good upload gets the same answer,
header for header.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

import msgspec
from werkzeug.middleware.proxy_fix import ProxyFix

from deniable.upload_rules import Refused
from deniable.wire import addresses
from deniable_aggregator.process import logs
from deniable_aggregator.store.errors import StoreError
from deniable_aggregator.store.server.servers import is_one
from deniable_aggregator.store.uploads import together
from deniable_server.api.uploads import intake
from deniable_server.http import gate, trace
from deniable_server.http.visit import Visit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deniable_aggregator.store.uploads.partition import Appended
    from deniable_server.api.uploads.intake import Prepared
    from deniable_server.service import Service


class Answer(NamedTuple):
    """What is sent of an upload that was taken, beside what gunicorn adds."""

    headers: list[tuple[str, str]]
    body: bytes
    status: str = "202 ACCEPTED"


class Door:
    """Answers plain uploads."""

    def __init__(
        self,
        known: Service,
        answered: Callable[[Visit, str, int], None] | None,  # counts requests
        app: Any,  # by WSGI, the app beside which it answers
    ) -> None:
        self.app = app
        self._known = known
        self._answered = answered
        self._headers = gate.headers(known.settings)
        self.together = is_one(known.client)  # a server of a cluster that is slow must not hold up uploads of others
        proxies = known.settings.trusted_proxies
        self._proxy = ProxyFix(lambda *_: (), x_for=proxies, x_proto=proxies, x_host=0) if proxies else None

    def answer(
        self,
        environs: Sequence[dict[str, Any]],  # WSGI environments of their requests, with bodies in memory
    ) -> list[Answer | None]:
        """Answer uploads that arrived together; None where Flask must answer, with the same environment."""
        # What was decided about such an upload is in its environment.
        visits = [self._visit(environ) for environ in environs]
        prepared = self._prepare_all(visits)
        good = [upload for upload in prepared if upload]
        settings = self._known.settings
        outcomes = iter(together.append([(upload.app.store, upload.stored(settings)) for upload in good]) if good else ())
        return [
            self._settle(visit, upload, next(outcomes)) if upload else None
            for visit, upload in zip(visits, prepared, strict=True)
        ]

    def _visit(self, environ: dict[str, Any]) -> Visit:
        if self._proxy:
            self._proxy(environ, cast("Any", None))  # changes the environment
        return Visit(environ)

    def _prepare_all(self, visits: Sequence[Visit]) -> list[Prepared | None]:
        """Prepare uploads; of those with the same new sums only the first, which pays for them."""
        prepared: list[Prepared | None] = []
        seen: set[tuple[str, bytes]] = set()
        for visit in visits:
            upload = self._prepare(visit)
            new = {(visit.app, kind) for kind in upload.batch.growth} if upload else set()
            # If the first is refused, the next must pay. So Flask decides about it, when this is known.
            prepared.append(upload if seen.isdisjoint(new) else None)
            seen |= new
        return prepared

    def _prepare(self, visit: Visit) -> Prepared | None:
        logs.begin(request=visit.number, route=addresses.REPORTS)
        body = visit.environ["wsgi.input"]
        upload = None
        try:
            with suppress(Refused, StoreError):
                upload = intake.prepare(self._known, visit)
        finally:
            body.seek(0)  # Flask may have to read it again
            logs.end()
        return upload

    def _settle(self, visit: Visit, upload: Prepared, outcome: Appended | StoreError) -> Answer | None:
        if isinstance(outcome, StoreError):
            visit.hand_on(partial(_fail, outcome))
            return None
        settle = partial(intake.settle, self._known, visit, upload, outcome)
        if outcome.outcome not in ("appended", "duplicate"):
            visit.hand_on(settle)
            return None
        logs.begin(request=visit.number, route=addresses.REPORTS, app=visit.app)
        try:
            body = msgspec.json.encode(settle())
        except Refused:  # its key was used for another upload
            visit.hand_on(settle)
            return None
        else:
            if self._answered:
                self._answered(visit, addresses.REPORTS, 202)
            trace.log_answer("POST", 202)
        finally:
            logs.end()
        shape = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        return Answer([*shape, *self._headers, (trace.HEADER, visit.number)], body)


def _fail(error: StoreError) -> NoReturn:
    try:
        raise error
    finally:
        del error  # it would keep this frame, and this frame it
