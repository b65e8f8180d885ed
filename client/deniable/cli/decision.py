"""What a person has decided, and since when: a small file beside the state of the app.

It never leaves the device. It is kept when a person changes their mind, so that they are not asked again. It does not say when or
how the tool was used after that day.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from deniable.frozen import NamedTuple
from deniable.platform.files import remove, rename_onto, write_new
from deniable.platform.folders import is_own

if TYPE_CHECKING:
    from pathlib import Path


class Decision(NamedTuple):
    """A person's answer."""

    agreed: bool
    since: str  # the day of the first answer, as 2026-11-27

    @property
    def new(self) -> bool:
        """Whether the first answer was in this calendar month."""
        return self.since[:7] == _today().isoformat()[:7]

    @property
    def weeks(self) -> int:
        """Number of calendar weeks since that of the first answer."""
        return (_monday(_today()) - _monday(date.fromisoformat(self.since))).days // 7

    @classmethod
    def of(cls, agreed: bool, earlier: Decision | None) -> Decision:  # noqa: FBT001 - the answer
        """Return a new answer of somebody who may have given another one before."""
        return earlier._replace(agreed=agreed) if earlier else cls(agreed, _today().isoformat())


def read(path: Path) -> Decision | None:
    """Read the file; None if there is none, if it is damaged, or if somebody else can have written it."""
    try:
        with path.open(encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            text = file.read(200)
        if not is_own(status):
            return None
        lines = dict(line.split(" = ") for line in text.splitlines())
        date.fromisoformat(lines["since"])
        return Decision(lines["agreed"] == "yes", lines["since"])
    except (OSError, ValueError, KeyError):
        return None


def write(path: Path, decision: Decision) -> None:
    """Replace the file; raise `OSError` if that fails."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    text = f"agreed = {'yes' if decision.agreed else 'no'}\nsince = {decision.since}\n"
    try:
        write_new(unfinished, text.encode())
        rename_onto(unfinished, path)
    finally:
        with suppress(FileNotFoundError):
            remove(unfinished)


def _today() -> date:
    return datetime.now(UTC).date()


def _monday(day: date) -> date:
    return day - timedelta(days=day.weekday())
