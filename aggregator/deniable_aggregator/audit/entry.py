"""An entry of the audit log: who did what and when, with the hash of the entry before it.

An entry is one line of JSON, in exactly one form::

    {"number":7,"time":"2026-11-21T19:40:00Z","event":"key.revoked","actor":"command","details":{"id":"3f9c2b7a51e0d486"},
     "nonce":"5b0c6d9f0c1e8a72","previous":"<hash of entry 6>","hash":"<hash of this entry>"}

The hash is SHA-256 of the line ``deniable audit 1`` and then the entry without its last member. The nonce is random. Without it,
whoever has the hash alone could test guesses about the entry, and two equal entries of one second would be the same.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING

from deniable.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_METRIC = ("by", "metric", "version", "period", "segment", "a", "b", "level", "only", "bands")
_QUERY = (*_OF_METRIC, "question", "filters", "compare", "pool", "among", "figure", "epsilon")

EVENTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        event: frozenset(members)
        for event, members in {
            "registry.served": ("digest", "revision", "metrics", "signed"),
            "question.noted": ("metric", "number", "hash"),
            "key.created": ("id", "role", "name", "epsilon"),
            "key.revoked": ("id",),
            "release.published": ("metric", "version", "period", "segment", "number", "closed"),
            "release.refused": ("metric", "version", "period", "segment", "reason"),
            "query.answered": (*_QUERY, "spent"),
            "query.refused": (*_QUERY, "problem"),
            "reports.simulated": ("people", "days"),
            "metric.erased": ("metric", "version", "keys"),
            "app.erased": ("metrics", "keys"),
            "letters.purged": ("letters", "reports"),
            "letters.requeued": ("letters", "reports"),
            "audit.rotated": ("file", "first", "last", "hash"),
            "audit.restored": ("files", "last", "hash"),
            "audit.expired": ("files", "last", "hash"),
        }.items()
    }
)
"""Events that are logged, and the members of their details."""

ALWAYS = frozenset({"key.revoked", "metric.erased", "app.erased", "letters.purged", "audit.rotated", "audit.expired"})
"""Events that make room in the store, or shut somebody out: they are logged in a store that is full as well."""

LONGEST = 1000
"""Most characters of a text in an entry's details."""

_CONTEXT = b"deniable audit 1\n"
_ACTOR = re.compile(r"key:[0-9a-f]{16}|open|server|worker|command")
_HASH = re.compile(r"[0-9a-f]{64}")
_NONCE = re.compile(r"[0-9a-f]{16}")
_MOST = 1 << 53
_LAST_SECOND = 253_402_300_799  # of the year 9999
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_MEMBERS = ("number", "time", "event", "actor", "details", "nonce", "previous", "hash")


def genesis(app: str) -> str:
    """Return the hash that the first entry of an app follows."""
    return sha256(_CONTEXT + app.encode()).hexdigest()


def shortened(text: str) -> str:
    """Return a text of at most `LONGEST` characters: of a longer text the beginning, its length and its SHA-256."""
    if len(text) <= LONGEST:
        return text
    ending = f"... ({len(text)} characters, SHA-256 {sha256(text.encode()).hexdigest()})"
    return text[: LONGEST - len(ending)] + ending


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A complete entry of the audit log. ParameterError if a member is invalid."""

    number: int  # its place in the log, from 1
    time: int  # Unix time in whole seconds
    event: str  # one of `EVENTS`
    actor: str  # who did it: `key:<id>`, `open` (a page without a key), `server`, `worker` or `command`
    # Declared names, numbers and codes: printable texts of at most 1000 characters, and whole numbers.
    details: Mapping[str, str | int]
    nonce: str  # 16 random hexadecimal digits
    previous: str  # hash of the entry before, or `genesis`
    hash: str = field(init=False)  # SHA-256 of all of it, as 64 hexadecimal digits
    line: bytes = field(init=False, repr=False)  # the only form of the entry, without a line end

    def __post_init__(self) -> None:
        for name, value, most in (("number", self.number, _MOST), ("time", self.time, _LAST_SECOND)):
            if type(value) is not int or not 0 <= value <= most or (name == "number" and not value):
                raise ParameterError(
                    f"the {name} of an entry: write a whole number from {int(name == 'number')} to {most}", value
                )
        for name, text, form in (
            ("actor", self.actor, _ACTOR),
            ("nonce", self.nonce, _NONCE),
            ("previous hash", self.previous, _HASH),
        ):
            if not isinstance(text, str) or not form.fullmatch(text):
                raise ParameterError(f"the {name} of an entry: write the form {form.pattern}", text)
        if not isinstance(self.event, str) or self.event not in EVENTS:
            raise ParameterError(f"event: write one of {', '.join(EVENTS)}", self.event)
        if not isinstance(self.details, dict) or not self.details.keys() <= EVENTS[self.event]:
            raise ParameterError(f"details: write {', '.join(sorted(EVENTS[self.event]))} for {self.event}", self.details)
        for name, detail in self.details.items():
            # A bool is refused, although it is an int: it is written differently.
            is_number = type(detail) is int and abs(detail) <= _MOST
            if not is_number and not (type(detail) is str and detail.isprintable() and len(detail) <= LONGEST):
                rule = f"{name} of {self.event}: write a whole number, or at most {LONGEST} printable characters"
                raise ParameterError(rule, got=f"of type {type(detail).__name__}")
        body = self._written()
        object.__setattr__(self, "hash", sha256(_CONTEXT + body).hexdigest())
        object.__setattr__(self, "line", body[:-1] + b',"hash":"' + self.hash.encode() + b'"}')

    @property
    def moment(self) -> str:
        """When it was, in UTC."""
        return datetime.fromtimestamp(self.time, UTC).strftime(_FORMAT)

    def _written(self) -> bytes:
        members = {
            "number": self.number,
            "time": self.moment,
            "event": self.event,
            "actor": self.actor,
            "details": dict(sorted(self.details.items())),
            "nonce": self.nonce,
            "previous": self.previous,
        }
        return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()


def read(
    line: bytes,  # any bytes
) -> tuple[LogEntry, str] | None:
    """Return the entry of a line and the hash in the line; None if it is no entry. A changed line is not `LogEntry.line`."""
    try:
        members = json.loads(line)
        if type(members) is not dict or tuple(members) != _MEMBERS:
            return None
        members["time"] = int(datetime.fromisoformat(members["time"]).timestamp())
        written = members.pop("hash")
        return (LogEntry(**members), written) if isinstance(written, str) else None
    except (ValueError, TypeError, OverflowError, RecursionError):  # ParameterError and errors of json are ValueErrors
        return None


def intact_entry(line: bytes) -> LogEntry | None:
    """Return the entry of a line; None if it is no entry, or was changed."""
    entry_and_hash = read(line)
    return entry_and_hash[0] if entry_and_hash and entry_and_hash[0].line == line else None
