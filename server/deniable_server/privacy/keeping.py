"""The sections of what is stored, and of who may read it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from deniable_aggregator import inventory
from deniable_server.privacy.access import KEYS, USERS
from deniable_server.privacy.document import Points, Section, Table, Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deniable.registry import Registry
    from deniable_aggregator.inventory import Kept

__all__ = ["access", "storage"]


def storage(registry: Registry) -> Section:
    """Write what is stored where, and for how long."""
    return Section(
        "storage",
        "What is stored, where and for how long",
        (
            Text(
                "Raw answers are on no server: they are randomised on the device before anything is written or sent, and "
                "the device itself stores none as it is; what it keeps of them is said below. No address, header or key is in "
                "the store, in a file or in a log, and of the time of an upload no more than the hour, but for what the second "
                "table says of the append-only file and of logs."
            ),
            _table("In the store (Redis or Valkey), by key", inventory.STORE, registry),
            _table("On servers, outside the store", inventory.SERVERS, registry),
            _table("On the device, in a directory that only its owner may read", inventory.DEVICE, registry),
            Text(
                "Whoever has a device's directory can find out by trying which answers were given to questions with kept "
                "responses: the secret lies beside them. The person can remove it; that begins a new device with a new "
                "budget."
            ),
        ),
    )


def _table(caption: str, things: Iterable[Kept], registry: Registry) -> Table:
    days = asdict(registry.retention)
    rows = tuple((each.name.replace("{app}", f"{{{registry.app}}}"), each.what, each.until.format(**days)) for each in things)
    return Table(caption, ("Name", "what it says", "kept"), rows)


def access() -> Section:
    """Write who may read what."""
    return Section(
        "access",
        "Who can read what",
        (
            Table("Keys of the app, by role", ("Role", "may"), tuple(KEYS.items())),
            Table(
                "Users of the store, as shipped; who runs the service may have set it up otherwise",
                ("User", "is for"),
                tuple(USERS.items()),
            ),
            Points(
                (
                    (
                        "Whoever administers the store or its machine",
                        "can read all that is in it: randomised reports that wait, and exact sums of them.",
                    ),
                    (
                        "Whoever runs the server or a proxy in front of it",
                        "can see addresses and times of uploads while they come, though neither is stored.",
                    ),
                    (
                        "Whoever has a read key, or where pages are open anybody who reaches them,",
                        "sees estimates from releases; what they asked is in the audit log.",
                    ),
                    (
                        "Whoever has an admin key",
                        "sees exact sums as well, before they are published; that they looked is in the audit log.",
                    ),
                )
            ),
        ),
    )
