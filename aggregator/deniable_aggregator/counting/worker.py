"""The worker: it counts the reports on each server of the store, and does the chores of the apps whose home is there.

While one server is away, the others are served. `deniable_aggregator.counting.counter` counts the batches of one server.
"""

from __future__ import annotations

import os
import socket
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from deniable_aggregator.counting import chores as chores_
from deniable_aggregator.counting.counter import Counter, WorkerSettings
from deniable_aggregator.counting.events import Events
from deniable_aggregator.counting.pauses import Pauses
from deniable_aggregator.store.errors import StoreError
from deniable_aggregator.store.outage import Outage

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from deniable_aggregator.archive.folder import Folder
    from deniable_aggregator.counting.chores import Chore
    from deniable_aggregator.store import Partition, Store

_LOOK_SECONDS = 5.0  # between looks which server has which partition


class _Server(NamedTuple):
    """A server of the store."""

    homes: list[Store]  # of apps whose releases and settings are there
    partitions: list[Partition]  # whose streams are there


class _Running(NamedTuple):
    """A thread, and the event that ends it."""

    thread: Thread
    over: Event


class Worker:
    """Counts the reports of some apps."""

    def __init__(
        self,
        stores: Sequence[Store],  # one for each app, of one Redis
        settings: WorkerSettings | None = None,
        *,
        chores: Sequence[Chore] = (),  # run when due, beside the counting
        archive: Folder | None = None,  # for reports of `bits` layouts; while it cannot be written, nothing is counted
        events: Events | None = None,  # hears of what the worker does
        outage: Outage | None = None,  # says if the stores cannot be used
    ) -> None:
        self._stores = {store.app: store for store in stores}
        self._settings = settings or WorkerSettings()
        self._chores = chores
        self._events, self._outage = events or Events(), outage or Outage()
        self._archive = archive
        self._known: dict[str, tuple[Partition, ...]] = {}  # by app
        self._servers: list[_Server] = []
        self._counters: dict[frozenset[str], Counter] = {}  # by their streams
        self._past: list[Counter] = []  # whose streams others have now
        self._error: BaseException | None = None  # of a thread
        self.name = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"

    @property
    def counted(self) -> int:
        """Reports counted so far."""
        return sum(counter.counted for counter in (*self._past, *self._counters.values()))

    @property
    def buried(self) -> int:
        """Batches put aside so far."""
        return sum(counter.buried for counter in (*self._past, *self._counters.values()))

    @property
    def cut_off(self) -> bool:
        """Whether the last use of a server or of the archive failed. Then entries may be left in hand at the end."""
        return not self._knows_all() or any(counter.cut_off for counter in self._counters.values())

    def run(
        self,
        stop: Event,  # when set, the entries in hand are committed and nothing more is read
        *,
        burst: bool = False,  # return as soon as the streams are empty and no chore has more to do
        successor: Event | None = None,  # set if another worker starts at once in its place: until then this one counts as alive
    ) -> None:
        """Count until stopped, then leave."""
        if burst:
            self._empty(stop)
        else:
            self._serve(stop)
        for counter in self._counters.values():
            counter.leave(successor=successor is not None and successor.is_set())

    def look(self) -> list[Counter]:
        """Look which server has which partition; return the counter of each server."""
        servers: dict[Hashable, _Server] = {}
        away: set[Hashable] = set()  # servers that do not answer: they are not asked again, as that may take seconds
        for app, store in self._stores.items():
            home = store.place
            servers.setdefault(home, _Server([], [])).homes.append(store)
            if home not in away:
                try:
                    if app not in self._known:
                        store.divide()
                        self._outage.passed(home)
                    self._known[app] = store.partitions
                except StoreError as error:
                    away.add(home)
                    if app not in self._known:  # otherwise its counter logs that
                        self._outage.failed(home, error)
                        self._events.failed()
            for partition in self._known.get(app, ()):
                servers.setdefault(partition.place, _Server([], [])).partitions.append(partition)
        self._servers = list(servers.values())
        before, self._counters = self._counters, {}
        for server in self._servers:
            streams = frozenset(partition.stream for partition in server.partitions)
            # A counter is used further: its thread runs, and it knows what it has in hand.
            if streams in before:
                self._counters[streams] = before.pop(streams)
            elif streams:
                self._counters[streams] = self._counter(server.partitions)
        self._past += before.values()
        return list(self._counters.values())

    def _counter(self, partitions: Sequence[Partition]) -> Counter:
        stores = [self._stores[app] for app in dict.fromkeys(partition.app for partition in partitions)]
        return Counter(stores, partitions, self.name, self._settings, self._archive, self._events, self._outage)

    def _knows_all(self) -> bool:
        return not self._servers or self._known.keys() == self._stores.keys()

    def _empty(self, stop: Event) -> None:
        """Count whatever waits, and do all chores that are due."""
        pauses = Pauses()
        while not stop.is_set():
            turns = [counter.turn(stop, block=False) for counter in self.look()]
            try:
                more = [] if self._barred() else [chore.do() for chore in self._chores]
            except StoreError as error:
                self._outage.failed(next(iter(self._stores.values())).place, error)
                self._events.failed()
                pauses.take(stop)
                continue
            if not self._knows_all():
                pauses.take(stop)
            elif not any(turns) and not any(more):
                return

    def _serve(self, stop: Event) -> None:
        """Count the batches of each server, and do the chores of its apps, each in a thread of its own."""
        running: dict[frozenset[str], _Running] = {}
        pauses = Pauses()
        while not stop.is_set():
            self.look()
            tasks = self._tasks()
            # A thread ends before another one starts with the same streams.
            _end([running.pop(names) for names in running.keys() - tasks.keys()])
            for names in tasks.keys() - running.keys():
                running[names] = self._start(tasks[names], stop)
            if self._knows_all():
                stop.wait(_LOOK_SECONDS)
            else:
                pauses.take(stop)
        _end(list(running.values()))
        if self._error:
            raise self._error

    def _barred(self, streams: frozenset[str] = frozenset()) -> bool:
        """Return whether the store's user may not read reports on the server of these streams; without any, on no server."""
        # Its chores would fail one by one, after the line that says so. Those of other servers go on.
        known = dict(self._counters)  # another thread looks for servers meanwhile
        return known[streams].barred if streams in known else all(counter.barred for counter in known.values())

    def _tasks(self) -> dict[frozenset[str], Callable[[Event], None]]:
        """Return the tasks by their streams (counting) or their apps (chores)."""
        tasks: dict[frozenset[str], Callable[[Event], None]] = {streams: each.run for streams, each in self._counters.items()}
        for server in self._servers:
            apps = frozenset(store.app for store in server.homes)
            if chores := [chore for chore in self._chores if chore.app in apps]:
                tell = partial(self._outage.failed, server.homes[0].place)
                streams = frozenset(partition.stream for partition in server.partitions)
                tasks[apps] = partial(chores_.run, chores, self._events, tell, barred=partial(self._barred, streams))
        return tasks

    def _start(self, task: Callable[[Event], None], stop: Event) -> _Running:
        """Start a thread. An error in it, other than of the store, ends the worker."""
        over = Event()

        def run() -> None:
            try:
                task(over)
            except BaseException as error:  # noqa: BLE001 - raised again by the main thread
                self._error = error
                stop.set()

        thread = Thread(target=run, daemon=True)
        thread.start()
        return _Running(thread, over)


def _end(running: Sequence[_Running]) -> None:
    """End threads: all at once, then wait for each."""
    # First all are told, so that the slowest decides how long this takes, not their sum.
    for task in running:
        task.over.set()
    for task in running:
        task.thread.join()
