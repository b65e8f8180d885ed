"""The doctor: checks a live installation, one thing after another, and changes nothing.

`host` checks this machine, `store` and `access` the store, and `pipeline` the reports of each app.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from deniable.messages.finding import Finding, Status, alike
from deniable_aggregator.store import Store
from deniable_aggregator.store.errors import AWAY, CommandForbidden, CommandRefused, cause, user
from deniable_aggregator.store.server import about
from deniable_aggregator.store.server.servers import primaries
from deniable_aggregator.store.uploads import registries
from deniable_server.doctor import host, pipeline, store
from deniable_server.doctor.served import Served

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

    from deniable_aggregator.store import Client
    from deniable_server.settings import Settings

__all__ = ["Finding", "Status", "alike", "examine"]


_START_SECONDS = 10.0
"""Seconds in which a server that was started again says that it serves an app."""


def examine(
    settings: Settings,  # the server's settings
    client: Client,  # its store
) -> Iterator[Finding]:
    """Run all checks; raise StoreError if no server of the store answers, after the findings about this machine."""
    yield host.variables()
    yield host.memory_files()
    yield host.gunicorn()
    served = Served.read(settings)
    yield from served.faults
    with suppress(CommandRefused):  # a store that cannot write answers even this with an error, but it answers
        about.ping(client)
    skipped: dict[str, None] = {}  # names of checks
    checks = store.checks(settings, served, client)
    backup = checks.pop("backup")  # last: what fails now comes before what may be lost some day
    yield from _checked("", checks, skipped)
    away: dict[Hashable, str] = {}  # servers that did not answer, and why: none is waited for twice
    serving = cache(lambda: registries.served(Store(client, app) for app in served.apps))
    deadline = cache(lambda: time.monotonic() + _START_SECONDS)  # of all apps together, from the first that has no server
    for app in served.apps:
        home = Store(client, app).place
        if home not in away:
            try:
                of_app = pipeline.checks(settings, app, client, served.sources.get(app), serving, deadline)
                yield from list(_checked(app, of_app, skipped))
                continue
            except AWAY as error:
                away[home] = cause(error)
                if len(away) == len(primaries(client)):
                    raise
        meaning = "its uploads and queries are refused, and nothing of it is counted"
        seen = f"the store's server that has its data cannot be used: {away[home]}"
        yield Finding("store server", "fault", seen, meaning, "the finding writes names it", app)
    yield from _checked("", {"backup": backup}, skipped)
    if skipped:
        seen = f"{', '.join(skipped)}: {user(settings.redis_url)} may not ask"
        remedy = "run `deniable doctor` also with the environment of the user 'query' (deploy/private/query.env), who may"
        yield Finding("not checked", "skipped", seen, "whether these are well is not known", remedy)


def _checked(app: str, checks: Mapping[str, Callable[[], Finding]], skipped: dict[str, None]) -> Iterator[Finding]:
    """Run checks. Those that the store's user may not make, or that need more than is installed here, are added to `skipped`."""
    for name, check in checks.items():
        try:
            yield check()
        except (CommandForbidden, ModuleNotFoundError):
            skipped[name] = None
        except CommandRefused as error:
            meaning = "the store refuses what the service does all the time"
            yield Finding(
                name, "fault", f"the store answers {type(error).__name__}", meaning, "look into the store's own log", app
            )
