"""The thread that talks to the network, and its orders.

A caller can stop waiting for a request at any time. So a server or name service that hangs blocks only this thread. The reports
go to the spool, and the app's deadlines hold.
"""

from __future__ import annotations

import time
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

from deniable.messages.log import log
from deniable.transport.http import HttpPost, UnreachedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deniable.transport.http import Post

Answer = tuple[int, "Mapping[str, str]", Any]

_AFTER_ERROR = 3600.0
_YOUNG = 10.0  # seconds; a program that ends sooner and sends nothing does not import what calls the server
_SHORTEST, _LONGEST = 1.0, 7 * 86400.0  # seconds between two calls of the chore


class Orders:
    """What the app wants from the sending threads. The lock is `changed`."""

    def __init__(
        self,
        *,
        spooled: bool,  # Whether there is a spool. Then `close` may give up the present request.
        # Called in the thread that makes batches, some time after `neglected` is set. What it raises is only logged.
        upkeep: Callable[[], object] = lambda: None,
    ) -> None:
        self.changed = Condition()
        self.spooled = spooled
        self.upkeep = upkeep
        self.neglected = False  # whether something beside the reports is to be looked after
        self.closed = False
        self.to_disk = False  # whether the app wants what is left at the end to stay on disk for a later run
        self.held = False
        self.stopped = False  # by the app, for good
        self.refused = False  # by the server, which does not know the key
        self.trouble: str | None = None  # why the last batch was not delivered
        self.refusal = ""  # why the server refused reports, the last time
        self.purges = 0
        self.seen = 0  # number of purges when the current batch was taken

    def renewed(self) -> Orders:
        """Return the same orders with a new lock, for a forked child."""
        orders = Orders(spooled=self.spooled, upkeep=self.upkeep)
        orders.closed, orders.held, orders.stopped, orders.refused = self.closed, self.held, self.stopped, self.refused
        return orders

    @property
    def paused(self) -> bool:
        """Whether nothing may be sent now, but everything is kept."""
        return self.held or self.stopped

    @property
    def purged(self) -> bool:
        """Whether there was a purge since the current batch was taken."""
        return self.purges != self.seen

    @property
    def abandoned(self) -> bool:
        """Whether nobody needs the answer to the current batch any more."""
        return self.purged or (self.closed and self.spooled)

    def wait(self, seconds: float | None) -> None:
        """Wait in the thread that makes batches, with the lock, for a change; look after what is neglected instead."""
        if not self.look_after():
            self.changed.wait(seconds)

    def look_after(self) -> bool:
        """Look after what is neglected, without the lock, which the caller has once; return whether there was anything."""
        if not self.neglected or self.closed:
            return False
        self.neglected = False  # first, so that what is asked for meanwhile is not missed
        self.changed.release()
        try:
            self.upkeep()
        except Exception as error:  # noqa: BLE001 - no batch is lost for it
            log.warning("deniable: the upkeep of the sending thread failed: %s", type(error).__name__)
        finally:
            self.changed.acquire()
        return True


class Courier:
    """Makes requests, one at a time, and calls a chore from time to time."""

    def __init__(
        self,
        orders: Orders,  # what the app wants
        make: Callable[[], Post],  # called in the thread before the first request; returns what sends requests
        # Called with the first request, or some seconds after the thread starts. It returns the seconds until the next call.
        # After an error that is an hour. It is not called while paused.
        chore: Callable[[], float] | None,
        failed: Callable[[], None],  # called after each error of the chore
        *,
        # Whether the chore waits for the first request. Its own request would tell when the thread was started.
        quiet: bool = False,
    ) -> None:
        self._orders = orders
        self._make = make
        self._chore = chore
        self._failed = failed
        self._quiet = quiet
        self._post: Post | None = None
        self._errand: _Errand | None = None
        self._first = True
        self._stopped = False
        self.thread = Thread(target=self._run, name="deniable-courier", daemon=True)

    def stop(self) -> None:
        """End the thread after the present request."""
        with self._orders.changed:
            self._stopped = True
            self._orders.changed.notify_all()

    def forget(self) -> None:
        """In a forked child, close its copy of the connection of the parent's thread."""
        if isinstance(self._post, HttpPost):
            self._post.http.forget()

    def ask(self, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
        """Have a request made, and wait; raise `UnreachedError` if it was not sent, or `OSError` without an answer."""
        orders = self._orders
        deadline = time.monotonic() + timeout
        errand = _Errand(body, headers, timeout)
        with orders.changed:
            # The last request may still hang in a name service, which cannot be interrupted.
            orders.changed.wait_for(lambda: self._errand is None or orders.abandoned, timeout)
            if self._errand is not None or orders.abandoned:
                raise UnreachedError
            self._errand = errand
            orders.changed.notify_all()
            while not (errand.ended or orders.abandoned) and (left := deadline - time.monotonic()) > 0:
                orders.wait(left)
            errand.given_up = not errand.ended
            if errand.given_up and not errand.begun:
                self._errand = None
                raise UnreachedError
        if errand.error is not None:
            raise errand.error
        if errand.answer is None:
            # What is not there yet sends nothing more: it sees that the errand is given up.
            if self._post is None or (isinstance(self._post, HttpPost) and not self._post.http.cut()):
                raise UnreachedError
            raise TimeoutError
        return errand.answer

    def _run(self) -> None:
        orders = self._orders
        due = time.monotonic() + _YOUNG if self._chore and not self._quiet else float("inf")
        while True:
            with orders.changed:
                while not self._stopped and (orders.paused or (self._errand is None and time.monotonic() < due)):
                    orders.changed.wait(None if orders.paused or due == float("inf") else due - time.monotonic())
                if self._stopped:
                    return
                if self._first and self._chore:
                    due, self._first = time.monotonic(), False
                # A chore that is due comes first, because it may find that nothing may be sent any more.
                errand = self._errand if time.monotonic() < due else None
                if errand is not None:
                    errand.begun = True
            if errand is None:
                due = time.monotonic() + self._do_chore()
            else:
                self._do(errand)

    def _do(self, errand: _Errand) -> None:
        try:
            if self._post is None:
                self._post = self._make()
            if isinstance(self._post, HttpPost):
                self._post.http.prepare()
            if errand.given_up:
                raise TimeoutError  # noqa: TRY301 - as for a slow server
            errand.answer = self._post(errand.body, errand.headers, errand.timeout)
        except Exception as error:  # noqa: BLE001 - raised again in `ask`
            errand.error = error
        with self._orders.changed:
            errand.ended = True
            self._errand = None
            self._orders.changed.notify_all()

    def _do_chore(self) -> float:
        try:
            return max(_SHORTEST, min(self._chore() if self._chore else _LONGEST, _LONGEST))
        except Exception as error:  # noqa: BLE001 - the host app must never notice
            log.debug("deniable: a chore of the sending thread failed: %s", type(error).__name__)
            self._failed()
            return _AFTER_ERROR


class _Errand:
    """A request, and its answer or error."""

    __slots__ = ("answer", "begun", "body", "ended", "error", "given_up", "headers", "timeout")

    def __init__(self, body: bytes, headers: Mapping[str, str], timeout: float) -> None:
        self.body = body
        self.headers = headers
        self.timeout = timeout
        self.begun = self.ended = self.given_up = False
        self.answer: Answer | None = None
        self.error: Exception | None = None
