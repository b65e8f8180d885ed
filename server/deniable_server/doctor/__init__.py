"""The doctor: checks a live installation, one thing after another, and changes nothing.

`host` checks this machine, `store` the store, and `pipeline` the reports of each app.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from deniable_aggregator.store import Store
from deniable_aggregator.store.errors import AWAY, CommandForbidden, CommandRefused
from deniable_aggregator.store.server import about
from deniable_aggregator.store.server.servers import primaries
from deniable_server.doctor import host, pipeline, store
from deniable_server.doctor.finding import Finding, Status, alike

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

    from deniable_aggregator.store import Client
    from deniable_server.settings import Settings
    from deniable_server.sources import Source

__all__ = ["Finding", "Status", "alike", "examine"]


def examine(
    settings: Settings,  # the server's settings
    sources: Mapping[str, Source],  # its registries, by app
    client: Client,  # its store
) -> Iterator[Finding]:
    """Run all checks; raise StoreError if no server of the store answers, after the findings about this machine."""
    yield host.variables()
    yield host.memory_files()
    yield host.gunicorn()
    with suppress(CommandRefused):  # a store that cannot write answers even this with an error, but it answers
        about.ping(client)
    for name, check in store.checks(settings, list(sources), client).items():
        yield _checked(name, "", check)
    away: set[Hashable] = set()  # servers that did not answer: none is waited for twice
    for app, source in sources.items():
        home = Store(client, app).place
        if home not in away:
            try:
                yield from [_checked(name, app, check) for name, check in pipeline.checks(settings, source, client).items()]
                continue
            except AWAY:
                away.add(home)
                if len(away) == len(primaries(client)):
                    raise
        meaning = "its uploads and queries are refused, and nothing of it is counted"
        yield Finding(
            "server", "fault", "the server that has its data does not answer", meaning, "the finding writes names it", app
        )


def _checked(name: str, app: str, check: Callable[[], Finding]) -> Finding:
    """Run a check. A missing permission of the store's user is a finding."""
    try:
        return check()
    except CommandForbidden:
        meaning = "whether this is well cannot be told from here"
        remedy = "run this as a user of the store that may do what the server does (deploy/users.acl), or as its administrator"
        return Finding(name, "warning", "the user of the store may not ask", meaning, remedy, app)
    except CommandRefused as error:
        meaning = "the store refuses what the service does all the time"
        return Finding(name, "fault", f"the store answers {type(error).__name__}", meaning, "look into the store's own log", app)
