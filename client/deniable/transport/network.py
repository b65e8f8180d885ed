"""The thread that talks to the network, and the orders it follows.

A caller can stop waiting for a request at any moment. So a server or name service that hangs blocks this thread only: the reports
go to the spool, and the app's deadlines hold.
"""

from __future__ import annotations

import logging
import time
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

from deniable.transport.http import HttpPost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deniable.transport.http import Post

__all__ = ["Answer", "Courier", "Orders"]

log = logging.getLogger("deniable")

Answer = tuple[int, "Mapping[str, str]", Any]

_AFTER_ERROR = 3600.0
_SHORTEST, _LONGEST = 1.0, 7 * 86400.0  # between two chores


class Orders:
    """What the app wants of the sending threads. It is read and written under `changed`.

    Parameters
    ----------
    spooled
        Whether what is not delivered is kept, so that closing may give up a request under way.
    """

    def __init__(self, *, spooled: bool) -> None:
        self.changed = Condition()
        self.spooled = spooled
        self.closed = False
        self.held = False
        self.stopped = False  # by the app, for good
        self.refused = False  # by the server, which knows no such key
        self.purges = 0
        self.seen = 0  # purges when the batch in hand was taken

    def renewed(self) -> Orders:
        """Return the same orders with a new lock, for a forked child."""
        orders = Orders(spooled=self.spooled)
        orders.closed, orders.held, orders.stopped, orders.refused = self.closed, self.held, self.stopped, self.refused
        return orders

    @property
    def paused(self) -> bool:
        """Whether nothing is to be sent, and nothing lost."""
        return self.held or self.stopped

    @property
    def purged(self) -> bool:
        """Whether there was a purge since the current batch was taken."""
        return self.purges != self.seen

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for the answer to the current batch any more."""
        return self.purged or (self.closed and self.spooled)


class Courier:
    """Makes requests, one at a time, and does a chore now and then.

    Parameters
    ----------
    orders
        What the app wants.
    make
        Makes what sends a request, in the thread, before the first.
    chore
        Called when the thread starts and again as many seconds later as it returned, or an hour after an error; not while paused.
    failed
        Called after each error of the chore.
    """

    def __init__(
        self, orders: Orders, make: Callable[[], Post], chore: Callable[[], float] | None, failed: Callable[[], None]
    ) -> None:
        self._orders = orders
        self._make = make
        self._chore = chore
        self._failed = failed
        self._post: Post | None = None
        self._errand: _Errand | None = None
        self._stopped = False
        self.thread = Thread(target=self._run, name="deniable-courier", daemon=True)

    def stop(self) -> None:
        """End the thread, once it has come back from what it does."""
        with self._orders.changed:
            self._stopped = True
            self._orders.changed.notify_all()

    def forget(self) -> None:
        """In a forked child, close what the parent's thread had open."""
        if isinstance(self._post, HttpPost):
            self._post.http.forget()

    def ask(self, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
        """Have a request made, and wait for the answer.

        Raises
        ------
        OSError
            If there was none within `timeout` seconds, however the server spent them, or nobody wants it any more.
        """
        orders = self._orders
        deadline = time.monotonic() + timeout
        errand = _Errand(body, headers, timeout)
        with orders.changed:
            # The last request may hang still, in a name service that nothing can interrupt.
            orders.changed.wait_for(lambda: self._errand is None or orders.abandoned, timeout)
            if self._errand is not None or orders.abandoned:
                raise TimeoutError
            self._errand = errand
            orders.changed.notify_all()
            orders.changed.wait_for(lambda: errand.ended or orders.abandoned, deadline - time.monotonic())
            errand.given_up = not errand.ended
            if errand.given_up and not errand.begun:
                self._errand = None
        if errand.error is not None:
            raise errand.error
        if errand.answer is None:
            if isinstance(self._post, HttpPost):
                self._post.http.cut()
            raise TimeoutError
        return errand.answer

    def _run(self) -> None:
        orders = self._orders
        due = time.monotonic() if self._chore else float("inf")
        while True:
            with orders.changed:
                while not self._stopped and (orders.paused or (self._errand is None and time.monotonic() < due)):
                    orders.changed.wait(None if orders.paused or due == float("inf") else due - time.monotonic())
                if self._stopped:
                    return
                # A chore that is due comes first: it may find that nothing is to be sent any more.
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
            if errand.given_up:
                raise TimeoutError  # noqa: TRY301 - as if the server had been slow, not we
            errand.answer = self._post(errand.body, errand.headers, errand.timeout)
        except Exception as error:  # noqa: BLE001 - it is raised again where the answer is waited for
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
    """A request to be made, and what came of it."""

    __slots__ = ("answer", "begun", "body", "ended", "error", "given_up", "headers", "timeout")

    def __init__(self, body: bytes, headers: Mapping[str, str], timeout: float) -> None:
        self.body = body
        self.headers = headers
        self.timeout = timeout
        self.begun = self.ended = self.given_up = False
        self.answer: Answer | None = None
        self.error: Exception | None = None
