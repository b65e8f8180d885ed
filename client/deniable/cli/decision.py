"""What a person has decided, and since when: a small file beside the state of the app.

It never leaves the device. It is kept when a person changes their mind, so that they are not asked again.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import NamedTuple

_WEEK = 7


class Decision(NamedTuple):
    """A person's answer."""

    agreed: bool
    since: str  # the day of the first answer, as 2026-11-27
    returned: bool = False  # whether the tool was used in the second week after it

    @property
    def days(self) -> int:
        """Number of days since the first answer."""
        return (_today() - date.fromisoformat(self.since)).days

    @property
    def noticed(self) -> Decision:
        """The decision, with today's use."""
        return self._replace(returned=self.returned or _WEEK <= self.days < 2 * _WEEK)

    @classmethod
    def of(cls, agreed: bool, earlier: Decision | None) -> Decision:  # noqa: FBT001 - the answer
        """Return a new answer of somebody who may have given another one before."""
        return earlier._replace(agreed=agreed) if earlier else cls(agreed, _today().isoformat())


def read(path: str) -> Decision | None:
    """Read the file; None if there is none, if it is damaged, or if somebody else can have written it."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - `pathlib` takes long to import
            status = os.fstat(file.fileno())
            text = file.read(200)
        if sys.platform != "win32" and (status.st_uid not in (os.geteuid(), 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
            return None
        lines = dict(line.split(" = ") for line in text.splitlines())
        date.fromisoformat(lines["since"])
        return Decision(lines["agreed"] == "yes", lines["since"], lines["returned"] == "yes")
    except (OSError, ValueError, KeyError):
        return None


def write(path: str, decision: Decision) -> None:
    """Replace the file; raise `OSError` if that fails."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - as above
    unfinished = f"{path}.{os.getpid()}.{time.monotonic_ns()}"
    words = ("agreed", decision.agreed), ("returned", decision.returned)
    text = "".join(f"{name} = {'yes' if value else 'no'}\n" for name, value in words) + f"since = {decision.since}\n"
    try:
        with open(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)  # noqa: PTH105
    finally:
        with suppress(FileNotFoundError):
            os.unlink(unfinished)  # noqa: PTH108


def _today() -> date:
    return datetime.now(UTC).date()
