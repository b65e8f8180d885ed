"""Forwarding: a thread that closes pools and sends them to the server, part by part, until the server has taken each."""

from __future__ import annotations

import json
import logging
import time
from base64 import b64encode
from sqlite3 import Error as FileError
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple

from deniable.messages.plural import plural
from deniable.upload_rules import MEDIA_TYPE
from deniable.wire.report import FORMAT

if TYPE_CHECKING:
    from deniable.transport.http import Post
    from deniable_relay.pools import Part, Pools

log = logging.getLogger("deniable.relay")

_EVERY = 10.0  # seconds between two looks at what is due
_TIMEOUT = 30.0  # seconds that the server may take for a part
_SHORTEST, _LONGEST = 10.0, 3600.0  # seconds until a part is tried again; they double


NO_ANSWER = "no answer"
OVER = "period_closed"  # the server's code for a period that takes no more reports
_KEPT = 7 * 86400.0  # seconds that a pool stays after it closed for good, though the server says so: its clock may be wrong


class Held(NamedTuple):
    """A pool that the server has not taken."""

    why: str  # status and code of the server's answer, or `NO_ANSWER`
    since: float  # when it was first sent, in seconds since 1970


class Forwarder:
    """Sends whole pools. Deleted is what the server has, and a week after its close what the server says came too late."""

    def __init__(
        self,
        app: str,  # whose reports they are
        pools: Pools,
        post: Post,  # sends one upload to the server
        key: str,  # the relay's key of the server
    ) -> None:
        self._app, self._pools, self._post, self._key = app, pools, post, key
        self._tries: dict[int, tuple[float, float]] = {}  # by transfer: when it is tried again, and the pause after that
        self.held: dict[int, Held] = {}  # by transfer
        self._stop = Event()
        self._thread = Thread(target=self._run, name="deniable-relay-forwarding", daemon=True)

    def start(self) -> None:
        """Begin to look for pools that are due."""
        self._thread.start()

    def stop(self) -> None:
        """End after the part that is being sent."""
        self._stop.set()
        self._thread.join()

    def turn(self, now: float) -> None:
        """Close what is due, and send each transfer as far as the server takes it."""
        self._pools.close_due(now)
        while parts := [part for part in self._pools.parts() if self._tries.get(part.transfer, (0.0, 0.0))[0] <= now]:
            for part in parts:
                if self._stop.is_set():
                    return
                self._send(part, now)

    def _send(self, part: Part, now: float) -> None:
        try:
            status, _, answer = self._post(encode(self._app, part), headers(part, self._key), _TIMEOUT)
        except OSError as error:
            self._hold(part, now, NO_ANSWER, f": {error}")
            return
        if status == 202:  # noqa: PLR2004 - HTTP's
            self._pools.settle(part)
            self._forget(part)
            return
        code = answer.get("code", "") if isinstance(answer, dict) else ""
        if code == OVER and now >= part.last + _KEPT:
            dropped = plural(self._pools.drop(part), "report")
            self._forget(part)
            log.warning("%s were dropped (%s): the server had closed their period before it was reached", dropped, _name(part))
            return
        self._hold(part, now, f"{status} {code}".strip())

    def _hold(self, part: Part, now: float, why: str, more: str = "") -> None:
        """Try the part again later: the server's answer may be a mistake that is mended."""
        pause = self._tries.get(part.transfer, (0.0, _SHORTEST))[1]
        self._tries[part.transfer] = (now + pause, min(2 * pause, _LONGEST))
        held = self.held.get(part.transfer)
        if held is None or held.why != why:
            self.held[part.transfer] = Held(why, held.since if held else now)
            log.warning("the server has not taken a pool (%s): %s%s; it stays here, and is sent again", _name(part), why, more)

    def _forget(self, part: Part) -> None:
        self._tries.pop(part.transfer, None)
        self.held.pop(part.transfer, None)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.turn(time.time())
            except FileError as error:
                log.error("the file of pools can not be used: %s", error)  # noqa: TRY400 - without the trace
            self._stop.wait(_EVERY)


def _name(part: Part) -> str:
    return f"{part.stratum.metric}, {part.stratum.period}"


def headers(
    part: Part,
    key: str,  # the relay's key of the server
) -> dict[str, str]:
    """Write the headers for the server."""
    return {"Authorization": f"Bearer {key}", "Content-Type": MEDIA_TYPE, "Idempotency-Key": part.name}


def encode(app: str, part: Part) -> bytes:
    """Write the body for the server, see ``POST /v1/pools``."""
    payloads = b64encode(b"".join(part.reports)).decode()
    group = part.stratum._asdict() | {"count": len(part.reports), "payloads": payloads}
    return json.dumps({"format": FORMAT, "app": app, "pool": part.size, "group": group}, separators=(",", ":")).encode()
