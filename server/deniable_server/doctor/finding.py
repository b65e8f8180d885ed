"""A finding: what one look at an installation saw, what that means, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "Status"]

Status = Literal["ok", "warning", "fault"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look saw.

    Parameters
    ----------
    check
        Name of the look.
    status
        ``"ok"``; ``"warning"``, it works, but something wants attention; ``"fault"``, reports are refused, lost or not counted,
        or will be.
    seen
        What was seen.
    meaning, remedy
        What that means, and what to do about it; empty where all is well.
    app
        Whose it is; empty for the installation's.
    """

    check: str
    status: Status
    seen: str
    meaning: str = ""
    remedy: str = ""
    app: str = ""
