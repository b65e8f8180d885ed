"""Whether running processes and files agree: the registry that each process has loaded, beside the one on disk.

`deniable doctor`, ``/readyz`` and pages ask here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deniable.messages.plural import plural
from deniable_aggregator.store.uploads import registries
from deniable_aggregator.store.uploads.registries import OFF

if TYPE_CHECKING:
    from collections.abc import Collection

    from deniable.messages.finding import Status
    from deniable_aggregator.store import Store
    from deniable_aggregator.store.uploads.registries import Loaded
    from deniable_server.sources import Source

SHOWN = 12
"""Characters of a digest that are shown."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The registry of an app on disk, and those that living processes have loaded."""

    on_disk: str  # identity of the file; empty: it cannot be read
    running: list[Loaded]  # the processes
    reloads: bool  # whether `deniable serve` has them read the file when it is edited
    fault: str  # why the file was not taken; empty if no process has refused it

    @classmethod
    def of(cls, store: Store, source: Source) -> Agreement:
        """Look at the processes of an app, and at its file."""
        every = registries.running(store)
        running = [each for each in every if each.role != "serve"]
        # Its processes run from a copy, so `deniable serve` says what the file is.
        keeper = next((each for each in every if each.role == "serve"), None)
        on_disk = keeper.digest if keeper else source.on_disk
        refusing = [keeper] if keeper else [each for each in running if each.digest != on_disk]
        return cls(on_disk, running, keeper is not None, next((each.fault for each in refusing if each.fault), ""))

    @property
    def differing(self) -> list[Loaded]:
        """The processes that have loaded another registry than the file has now."""
        return [each for each in self.running if each.digest != self.on_disk]

    @property
    def status(self) -> Status:
        """How bad it is that they differ: a file that was refused, or an app that is off, is a fault."""
        if not self.differing:
            return "ok"
        return "fault" if self.fault or self.is_off else "warning"

    @property
    def is_off(self) -> bool:
        """Whether a process leaves the app off."""
        return any(each.digest == OFF for each in self.differing)

    @property
    def numbers(self) -> dict[str, int]:
        """How many processes there are, by what they do."""
        return _numbers(self.running)

    @property
    def processes(self) -> str:
        """The processes in words, such as ``2 servers, 1 worker``."""
        return words(self.running)

    @property
    def state(self) -> str:
        """What has become of the file: ``the file was edited``, or the like; empty if all processes have loaded it."""
        if not self.differing:
            return ""
        if self.fault:
            return "the file was edited and was refused"
        return "the file was edited" if self.on_disk else "the file cannot be read"

    @property
    def doubt(self) -> str:
        """What does not agree, as a sentence for people; empty if all does."""
        if not self.differing:
            return ""
        every = len(self.differing) == len(self.running)
        who = f"all processes ({self.processes})" if every else f"{words(self.differing)} of {self.processes}"
        soon = " for a few seconds" if self.reloads and not self.fault else ""
        return f"{self.status.capitalize()} about the registry: {self.state}. The one before is still in use by {who}{soon}."


def has_loaded(process: Loaded) -> str:
    """Say what a process has loaded."""
    return "leaves the app off" if process.digest == OFF else f"has loaded {process.digest[:SHOWN]}"


def _numbers(processes: Collection[Loaded]) -> dict[str, int]:
    return dict(sorted(Counter(each.role for each in processes).items()))


def words(processes: Collection[Loaded]) -> str:
    """Write how many processes there are, by what they do."""
    return ", ".join(plural(n, role) for role, n in _numbers(processes).items()) or "no process"
