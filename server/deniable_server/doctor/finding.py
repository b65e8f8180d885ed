"""A finding: the result of one check, what it means, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "Status"]

Status = Literal["ok", "warning", "fault"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Parameters
    ----------
    check
        Name of the check.
    status
        ``"ok"``; ``"warning"``, it works, but needs attention; ``"fault"``, reports are refused, lost or not counted, or will be.
    seen
        What was found.
    meaning, remedy
        What it means, and what to do about it; empty if all is well.
    app
        The app it is about; empty for the installation.
    """

    check: str
    status: Status
    seen: str
    meaning: str = ""
    remedy: str = ""
    app: str = ""
