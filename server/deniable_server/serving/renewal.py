"""Renewal: a process reads its registries anew while it answers, and says in the store which ones it has."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Final

from deniable.errors import DeniableError
from deniable.registry.published import in_a_line
from deniable_aggregator.store.uploads.registries import OFF, Signs
from deniable_server.api.audit_trail import log_registries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from queue import SimpleQueue

    from flask import Flask

    from deniable_aggregator.store import Store
    from deniable_aggregator.store.uploads.registries import Role
    from deniable_server.service import Service

log = logging.getLogger("deniable.server")

_ROLES: Final[Mapping[str, Role]] = {"all": "server", "ingest": "ingest-server", "query": "query-server"}
"""What a process says that it does, by the setting `serves`."""


@contextmanager
def renewing(
    flask: Flask,  # the server
    edits: SimpleQueue[None],  # has something in it when the files were edited
) -> Iterator[None]:
    """Read the registries anew after each edit, in a thread of its own. One with a fault stays as it was."""
    known: Service = flask.extensions["deniable"]
    signs = Signs(_ROLES[known.settings.serves], *_loaded(known), heard=known.heard)
    signs.start()
    Thread(target=_renew, args=(flask, known, edits, signs), name="registries", daemon=True).start()
    try:
        yield
    finally:
        signs.stop()


def _renew(flask: Flask, known: Service, edits: SimpleQueue[None], signs: Signs) -> None:
    while True:
        edits.get()
        try:
            files = known.renew()
        except (DeniableError, OSError) as error:
            faults = dict.fromkeys(known.apps, in_a_line(error))
        else:
            faults = {each.app: in_a_line(each.error) for each in files.faulty}
            log_registries(flask)
        for app, reason in faults.items():
            log.debug("this process goes on without the files of %s: %s", app, reason)  # gunicorn's first one has said so
        signs.change(*_loaded(known, faults))


def _loaded(known: Service, faults: Mapping[str, str] | None = None) -> tuple[dict[Store, str], Mapping[str, str]]:
    """Return the identity of each registry that a process has loaded, and by app why it has not taken a file."""
    identities = {app.store: app.source.identity for app in known.apps.values()}
    identities |= {known.open_store(name): OFF for name in known.off}
    return identities, {**(faults or {}), **known.off}
