"""Keys of an app, in the store. Only hashes are stored, so reading the store is not enough to use a key.

A table has the record of each key as JSON, by its id. It changes only together with an entry of the audit log. Another table has
the day on which each key was last used.

A third table, of all apps, has the app of each key by its id. By it a server that has not read the registry of an app knows the
app's keys, and its devices wait instead of giving up.

A key has 192 random bits. Nobody can guess it, so a plain SHA-256 hides it. The first 64 bits of the hash are its id.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self

from deniable.errors import ParameterError
from deniable.registry.tables import check_nats_of_analysts
from deniable_aggregator.audit.log import AuditLog
from deniable_aggregator.store import schema
from deniable_aggregator.store.values.collections import values_at
from deniable_server.access.roles import ROLES, draw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deniable_aggregator.store import Store
    from deniable_aggregator.store.values.collections import StoreCommand, Table

_START = 7
_LONGEST_NAME = 100
_ID = re.compile(r"[0-9a-f]{16}")


def id_of(digest: bytes) -> str:
    """Return the id of the key with this SHA-256."""
    return digest[:8].hex()


@dataclass(frozen=True, slots=True)
class Key:
    """The record of a key."""

    app: str  # the app that it opens
    role: str  # one of `ROLES`
    digest: bytes  # its SHA-256
    name: str = ""  # its label; at most 100 printable characters
    start: str = ""  # its first characters, by which people recognise it
    created: date | None = None  # the day on which it was made; None for keys from the environment
    used: date | None = None  # the day on which it was last used; None if never, or if not read
    # Nats that it may spend on questions about a month's reports, if that is less than what the registry gives each key.
    epsilon: float | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ParameterError(f"role: write {', '.join(ROLES)}", self.role)
        if self.epsilon is not None:
            if self.role == "ingest":
                raise ParameterError("epsilon: leave it out; an ingest key asks nothing", self.epsilon)
            check_nats_of_analysts("epsilon", self.epsilon)
        if len(self.name) > _LONGEST_NAME or not self.name.isprintable():
            raise ParameterError(f"name: write at most {_LONGEST_NAME} printable characters", self.name)

    @property
    def id(self) -> str:
        """The id by which it is revoked: 16 hexadecimal digits."""
        return id_of(self.digest)

    def opens(self, role: str) -> bool:
        """Return whether the key has the permissions of a role."""
        return self.role == role or (self.role, role) == ("admin", "read")

    def public(self) -> dict[str, str | float | None]:
        """Return what may be shown of the key."""
        created, used = (day.isoformat() if day else None for day in (self.created, self.used))
        return {
            "id": self.id,
            "role": self.role,
            "start": self.start,
            "name": self.name,
            "epsilon": self.epsilon,
            "created": created,
            "used": used,
        }

    def _write(self) -> str:
        created = self.created.isoformat() if self.created else None
        known = {
            "role": self.role,
            "digest": self.digest.hex(),
            "name": self.name,
            "start": self.start,
            "created": created,
            "epsilon": self.epsilon,
        }
        return json.dumps(known)

    @classmethod
    def _read(cls, app: str, written: bytes, used: bytes | None) -> Self:
        known: dict[str, Any] = json.loads(written)
        created = date.fromisoformat(known["created"])
        digest, epsilon = bytes.fromhex(known["digest"]), known["epsilon"]
        return cls(app, known["role"], digest, known["name"], known["start"], created, _day(used), epsilon)


class KeyStore:
    """The keys of one app."""

    def __init__(
        self,
        store: Store,  # the app's
    ) -> None:
        self.app, self._store = store.app, store
        self._keys, self._used = store.table(schema.KEYS), store.table(schema.KEYS_USED)
        self._apps = store.shared_table(schema.KEYS_APPS)
        self._log = AuditLog(store)

    def create(self, role: str, name: str, epsilon: float | None = None) -> tuple[str, Key]:
        """Draw a key and store its hash; return the key, which is not stored anywhere, and its record."""
        if role not in ROLES:
            raise ParameterError(f"role: write {', '.join(ROLES)}", role)
        text = draw(role)
        digest, today = sha256(text.encode()).digest(), datetime.now(UTC).date()
        key = Key(self.app, role, digest, name, text[:_START], today, epsilon=epsilon)
        details: dict[str, str | int] = {"id": key.id, "role": role, "name": name}
        if epsilon is not None:
            details["epsilon"] = str(epsilon)
        written = key._write()  # noqa: SLF001 - its own module
        self._apps.put({key.id: self.app})  # first: without the key it means nothing
        self._logged("key.created", "command", details, self._keys.adding(key.id, written))
        return text, key

    def all(self) -> list[Key]:
        """Return all keys with the days on which they were last used, the oldest first."""
        used = self._used.all()
        keys = [self.read(text, used.get(id_)) for id_, text in self._keys.all().items()]
        return sorted(filter(None, keys), key=lambda key: (key.created or date.min, key.name, key.id))

    def load(self) -> list[Key]:
        """Return all keys, in one call, without the days of use."""
        return [key for text in self._keys.all().values() if (key := self.read(text))]

    def place(self, id_: str) -> tuple[Table, str]:
        """Return where the record of a key stands."""
        return self._keys, id_

    def read(self, written: bytes | None, used: bytes | None = None) -> Key | None:
        """Read a record; return None if there is none, or for a malformed one, which opens nothing."""
        if written is None:
            return None
        try:
            return Key._read(self.app, written, used)  # noqa: SLF001 - its own module
        except (ValueError, KeyError, TypeError):
            return None

    def revoke(
        self,
        id_: str,  # the key's id
        *,
        actor: str = "command",  # who revokes it, for the audit log
    ) -> bool:
        """Delete a key; return False if no key has this id."""
        if not _ID.fullmatch(id_):
            return False
        forgotten = self._logged("key.revoked", actor, {"id": id_}, self._keys.dropping(id_))
        self._used.drop(id_)  # last: whatever fails, the key opens nothing
        if forgotten:
            self._apps.drop(id_)
        return forgotten

    def _logged(self, event: str, actor: str, details: dict[str, str | int], change: StoreCommand) -> bool:
        """Change the keys and append to the audit log, or neither; return whether anything was changed."""
        return self._log.append(event, actor, details, change=change) is not None

    def of_any_app(self, id_: str) -> Key | None:
        """Find the key with an id in whatever app of the store it is."""
        app = self._apps.get(id_)
        if app is None:
            return None
        there = KeyStore(self._store.other(app.decode("utf-8", "replace")))
        return there.read(there._keys.get(id_))

    def note(self, id_: str, day: date) -> None:
        """Record that a key was used on a day."""
        self._used.put({id_: day.isoformat()})


def find(stores: Iterable[KeyStore], id_: str) -> Iterator[Key]:
    """Find the key with an id in any of several apps, in one round trip."""
    stores = list(stores)
    for store, written in zip(stores, values_at([store.place(id_) for store in stores]), strict=True):
        if key := store.read(written):
            yield key


def _day(written: bytes | None) -> date | None:
    """Read a day of use. Servers may write them, so they may be wrong."""
    try:
        return date.fromisoformat((written or b"").decode())
    except ValueError:
        return None
