"""Logs of our processes: one line for each record, for people (``console``) or programs (``json``), with no data of clients.

A record contains its event and the `FIELDS`, and no other attribute that libraries add. An exception is logged as its type and
its places in the code, because its message may quote a client. Only errors in our own configuration are logged with it.

The time of a record is its hour, so that no log shows when an upload came. A record `OF_PROCESS` has its second: of a
file that was refused, or of the store as a worker sees it. It has none while a request is answered, as its time would be that of
the request, unless a machine of the operator asks (`PROBES`), which sends no upload. And it has none where each request has a
line, as the lines around it would be bounded by it. No record has a duration.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from deniable.errors import ConfigurationError, RegistryError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

Level = Literal["debug", "info", "warning", "error", "critical"]
Format = Literal["console", "json"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
FORMATS: Final[tuple[Format, ...]] = get_args(Format)

FIELDS = ("request", "route", "method", "status", "code", "app")
"""Fields of a record: the request's id, the rule of its address (never the address itself), its method, the status of the
answer, the code of the problem, and the app.
"""

OF_PROCESS: Final = {"of_process": True}
"""``extra`` of a record that a process writes about itself."""

PROBES: Final = frozenset({"/metrics", "/readyz"})
"""Rules of the addresses that only machines of the operator ask."""

_context: ContextVar[dict[str, Any] | None] = ContextVar("deniable_log_context", default=None)


def begin(**known: Any) -> None:
    """Set `FIELDS` of all records from here on, in this thread or task."""
    _context.set(known)


def note(**known: Any) -> None:
    """Add to the fields set by `begin`; without it this does nothing."""
    carried = _context.get()
    if carried is not None:
        carried.update(known)


def current() -> Mapping[str, Any]:
    """Return the fields of records at the moment."""
    return _context.get() or {}


def end() -> None:
    """Clear the fields."""
    _context.set(None)


def places(trace: TracebackType | None) -> str:
    """Return the places in the code that an exception passed, the innermost first."""
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(extract_tb(trace)))


class _Formatter(logging.Formatter):
    def parts(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return the fields of a record, in order."""
        moment = datetime.fromtimestamp(record.created, UTC)
        time = f"{moment:%Y-%m-%dT%H:%M:%SZ}" if _is_precise(record) else f"{moment:%Y-%m-%dT%H}:00Z"
        fields = {"time": time, "level": record.levelname.lower(), "logger": record.name, "event": record.getMessage()}
        carried = current()
        for name in FIELDS:
            value = getattr(record, name, carried.get(name))
            if value is not None:
                fields[name] = value
        if record.exc_info and record.exc_info[1] is not None:
            fields |= _described(record.exc_info[1])
        return fields


def _is_precise(record: logging.LogRecord) -> bool:
    """Return whether a record may show its second."""
    quiet = logging.getLogger().getEffectiveLevel() >= logging.WARNING  # else each request has a line
    carried = current()
    return getattr(record, "of_process", False) and quiet and (not carried or carried.get("route") in PROBES)


def _described(error: BaseException) -> dict[str, str]:
    described = {"exception": type(error).__name__, "places": places(error.__traceback__)}
    if isinstance(error, (ConfigurationError, RegistryError)):
        described["detail"] = str(error)
    return described


class _Json(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.parts(record), default=lambda value: type(value).__name__)


class _Console(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = self.parts(record)
        head = "{time} {level:<8} {logger}: {event}".format(**fields)
        words = [f"{name}={fields[name]}" for name in (*FIELDS, "exception", "places", "detail") if name in fields]
        # Only a new record begins at the margin: a line end in a text cannot forge one.
        return "\n    ".join(" ".join([head, *words]).splitlines())


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How a process logs: ``DENIABLE_LOG_LEVEL`` and ``DENIABLE_LOG_FORMAT``. ConfigurationError if a value is not allowed."""

    level: Level = "warning"  # The lowest level that is written; one of `LEVELS`. `info` has a line for each request.
    format: Format = "console"  # one of `FORMATS`

    def __post_init__(self) -> None:
        for name, value, known in (("LEVEL", self.level, LEVELS), ("FORMAT", self.format, FORMATS)):
            if value not in known:
                raise ConfigurationError(f"DENIABLE_LOG_{name} = {value!r}: write {', '.join(known[:-1])} or {known[-1]}")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> LogSettings:
        """Read the settings from environment variables."""
        names = {"level": "DENIABLE_LOG_LEVEL", "format": "DENIABLE_LOG_FORMAT"}
        return cls(**{name: environment[variable] for name, variable in names.items() if variable in environment})  # type: ignore[arg-type]

    def formatter(self) -> logging.Formatter:
        """Return the formatter of records."""
        return _Json() if self.format == "json" else _Console()

    def apply(self) -> None:
        """Log to stderr in this process, and replace all other handlers: it is for our own processes, not for an app's."""
        handler = logging.StreamHandler()
        handler.setFormatter(self.formatter())
        root = logging.getLogger()
        for old in list(root.handlers):
            root.removeHandler(old)
        root.addHandler(handler)
        root.setLevel(self.level.upper())
        logging.raiseExceptions = False  # the message about a record that cannot be written would quote all of it
        sys.excepthook = _uncaught
        threading.excepthook = _uncaught_in_thread


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logging.getLogger("deniable").critical("the process ends because of a bug", exc_info=(kind, error, trace))


def _uncaught_in_thread(caught: threading.ExceptHookArgs) -> None:
    if caught.exc_value is not None and not isinstance(caught.exc_value, SystemExit):
        error = (caught.exc_type, caught.exc_value, caught.exc_traceback)
        logging.getLogger("deniable").critical("a thread ends because of a bug", exc_info=error)
