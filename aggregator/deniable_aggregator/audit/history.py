"""The public history of questions: what was asked when, as lines that are only appended.

Each line has the hash of the line before it, and is appended together with an entry of the audit log that names its hash. So
whoever remembers the hash of one line can see later that nothing before it was changed. There are only declared texts in it,
and nothing about people.

The hash is SHA-256 of the line ``deniable history 1`` and then the JSON of the line without the hash, in UTF-8. Its members are
sorted by name, with ", " and ": " between them.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from deniable_aggregator.store.errors import CommandRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deniable_aggregator.audit.log import AuditLog

_CONTEXT = b"deniable history 1\n"
_TRIES = 100

Texts = dict[str, Any]
"""What is declared of a question, by name."""


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """One line: something that happened to a question."""

    number: int  # its place in the history, from 1
    time: str  # when it was noted, in UTC
    event: str  # "declared", "changed" or "ended"
    metric: str
    texts: Texts  # what is declared; of one that ended, what was declared last
    previous: str  # hash of the line before; of the first line, of the app's name
    hash: str

    @classmethod
    def after(cls, app: str, last: HistoryLine | None, event: str, metric: str, texts: Texts) -> HistoryLine:
        """Make the next line."""
        moment = datetime.fromtimestamp(int(time.time()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        number, previous = (last.number + 1, last.hash) if last else (1, _digest(app))
        line = cls(number, moment, event, metric, texts, previous, "")
        return cls(number, moment, event, metric, texts, previous, _digest(line.body()))

    @classmethod
    def read(cls, line: bytes) -> HistoryLine:
        """Read what `written` wrote."""
        return cls(**json.loads(line))

    def body(self) -> str:
        """Write what is hashed."""
        return _json({name: value for name, value in self.members().items() if name != "hash"})

    def members(self) -> dict[str, Any]:
        """Return its members by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    def written(self) -> str:
        """Write it as JSON."""
        return _json(self.members())


def _json(members: Mapping[str, Any]) -> str:
    return json.dumps(members, ensure_ascii=False, sort_keys=True)


def _digest(text: str) -> str:
    return sha256(_CONTEXT + text.encode()).hexdigest()


def read(log: AuditLog) -> list[HistoryLine]:
    """Read the history of an app, the oldest line first."""
    return [HistoryLine.read(line) for line in log.store.history.between(0, -1)]


def note(
    log: AuditLog,  # of the app
    questions: Mapping[str, Texts],  # those that everybody may see now, by metric
) -> None:
    """Append a line for each question that is new, was changed, or is no longer there."""
    for _ in range(_TRIES):
        lines = read(log)
        last = lines[-1] if lines else None
        news = next(_news(lines, questions), None)
        if news is None:
            return
        line = HistoryLine.after(log.app, last, *news)
        log.append(
            "question.noted",
            "server",
            {"metric": line.metric, "number": line.number, "hash": line.hash},
            change=log.store.history.appending(line.written()),
            unless=lambda last=last: _last_hash(log) != (last.hash if last else ""),  # type: ignore[misc] # another was faster
        )
    raise CommandRefused(f"the history of {log.app} has grown under each of {_TRIES} tries")


def _news(lines: list[HistoryLine], questions: Mapping[str, Texts]) -> Iterator[tuple[str, str, Texts]]:
    """Yield what is not in the history yet, as event, metric and texts."""
    latest = {line.metric: line for line in lines}
    for metric, texts in questions.items():
        before = latest.get(metric)
        if before is None or before.event == "ended":
            yield "declared", metric, texts
        elif before.texts != texts:
            yield "changed", metric, texts
    for metric, line in latest.items():
        if metric not in questions and line.event != "ended":
            yield "ended", metric, line.texts


def _last_hash(log: AuditLog) -> str:
    lines = log.store.history.between(-1, -1)
    return HistoryLine.read(lines[0]).hash if lines else ""
