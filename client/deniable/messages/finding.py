"""A finding: the result of one check, what it means, and what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from deniable.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

Status = Literal["ok", "warning", "fault", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str  # name of the check
    # "ok"; "warning", it works, but needs attention; "fault", reports are refused, lost or not counted, or will be; "skipped", it
    # cannot be known from here.
    status: Status
    seen: str  # what was found
    # meaning, remedy: what it means, and what to do about it; empty if all is well
    meaning: str = ""
    remedy: str = ""
    app: str = ""  # the app it is about; empty for the installation


def alike(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Group the findings of many apps: those of a group differ only in the app and in numbers. Checks keep their order."""
    groups: dict[str, dict[tuple[str, ...], list[Finding]]] = {}
    for finding in findings:
        texts = (finding.seen, finding.meaning, finding.remedy)
        form = (finding.status, *(re.sub(r"\d[\d,.]*", "0", text.replace(finding.app, "APP")) for text in texts))
        groups.setdefault(finding.check, {}).setdefault(form, []).append(finding)
    return [group for forms in groups.values() for group in forms.values()]
