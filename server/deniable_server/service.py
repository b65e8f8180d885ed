"""The service: its apps with their registries and stores, and its keys and limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

from flask import current_app

from deniable_aggregator.answer.app import AppMetrics
from deniable_aggregator.audit.log import AuditLog
from deniable_aggregator.questions.budgets import Budgets
from deniable_aggregator.store.errors import NoRoom, StoreError, reason
from deniable_aggregator.store.server import about, room
from deniable_aggregator.store.server.servers import is_one, primaries
from deniable_server import sources

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from deniable.served_registry.signature import Envelope
    from deniable.wire.layout import Layout
    from deniable_aggregator.store import Client, Store
    from deniable_aggregator.store.outage import Outage
    from deniable_aggregator.store.values.sessions import Sessions
    from deniable_server.access.key_ring import Ring
    from deniable_server.access.rate_limits import Limits
    from deniable_server.access.sealing_keys import Opener
    from deniable_server.settings import Settings
    from deniable_server.sources import Files, Source


class Collected(NamedTuple):
    """What groups of one metric, version, definition, period and segment have in common."""

    layout: Layout  # shape of their reports
    kind: bytes  # the first bytes of their groups in the stream
    size: int  # bytes of a report
    valid_bytes: tuple[tuple[int, bytes], ...]  # bytes that prove a report valid, from `tally.valid_bytes`
    # opens, closes: Unix times between which they are accepted
    opens: float
    closes: float


@dataclass(frozen=True)
class App(AppMetrics):
    """One app of the service."""

    source: Source  # its registry, and what else its files say
    audit: AuditLog = field(init=False, compare=False, repr=False)
    budgets: Budgets = field(init=False, compare=False, repr=False)  # the budget of its analysts
    # Cache of valid groups, by their description.
    collected: dict[tuple[str, int, str, str, str], Collected] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )
    # Kinds of groups whose sums an upload to this process has paid for.
    paid: set[bytes] = field(init=False, default_factory=set, compare=False, repr=False)

    def __post_init__(self) -> None:
        AppMetrics.__post_init__(self)
        object.__setattr__(self, "audit", AuditLog(self.store))
        object.__setattr__(self, "budgets", Budgets(self.store, self.declared.analysts))

    @classmethod
    def of(cls, source: Source, store: Store) -> App:
        """Return the app of a registry."""
        return cls(source.registry, source.versions, store, source)

    @property
    def envelope(self) -> Envelope | None:
        """The signed registry for devices; None if devices have their own."""
        return self.source.envelope


@dataclass(frozen=True, slots=True)
class Service:
    """Everything that a request may need."""

    settings: Settings  # as read at the start
    apps: dict[str, App]  # by name
    client: Client  # their store
    ring: Ring  # the keys
    limits: Limits  # the rate limits
    sessions: Sessions  # the sessions of the dashboard
    opener: Opener  # opens what relays forward
    outage: Outage  # says why the store cannot be used
    open_store: Callable[[str], Store]  # opens the store of an app
    off: dict[str, str]  # why apps are off, by name: their files cannot be used

    def renew(self) -> Files:
        """Read the registries anew, under running requests. What cannot be used changes nothing; what is mended is served."""
        files = sources.read(self.settings, {name: app.source for name, app in self.apps.items()})
        for name, source in files.apps.items():
            known = self.apps.get(name)
            if known is None or known.source is not source:
                store = known.store if known else self.open_store(name)
                self.ring.serve(store)
                self.apps[name] = App.of(source, store)
        self.off.clear()
        self.off.update(files.off)
        return files

    def refusals(self) -> dict[Hashable, str]:
        """Return why servers of the store take no uploads, or no queries, each of which writes to the audit log."""
        errors: dict[Hashable, StoreError] = dict(about.refusals(self.client, self.apps).items())
        if self.settings.serves != "query":
            errors |= self._refused_uploads(errors)
        for error in errors.values():
            self.outage.failed("", error)
        if not errors:
            self.outage.passed("")
        return {server: reason(error) for server, error in errors.items()}

    def _refused_uploads(self, errors: Mapping[Hashable, StoreError]) -> dict[Hashable, StoreError]:
        """Return why servers take no uploads, of those that accept other writes."""
        refusing: dict[Hashable, StoreError] = {
            server: NoRoom() for server in primaries(self.client) if server not in errors and room.is_full(server)
        }
        for app in self.apps.values():
            if app.store.place not in errors.keys() | refusing.keys():
                try:
                    app.store.ensure()
                except StoreError as error:
                    refusing[app.store.place] = error
        return refusing

    def heard(
        self,
        error: StoreError | None,  # why a sign of life was not taken; None if all were
    ) -> None:
        """Say that the store cannot be used, also while nobody asks this server for anything, and that it can be used again."""
        if error:
            self.outage.failed("", error)
        elif self.outage.lasts:
            self.refusals()

    def took_upload(self) -> None:
        """Note that the store took an upload, and so that it can be used."""
        if is_one(self.client):
            self.outage.passed("")


def service() -> Service:
    """Return the service of the current Flask app."""
    return cast("Service", current_app.extensions["deniable"])
