"""Whether running processes and files agree: the registry that each process has loaded, beside the one on disk.

`deniable doctor`, ``/readyz`` and pages ask here.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from deniable.messages.plural import plural
from deniable.registry.published import identity, identity_on_disk
from deniable_aggregator.store.uploads import registries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.registry import Registry
    from deniable_aggregator.store import Store
    from deniable_aggregator.store.uploads.registries import Loaded

SHOWN = 12
"""Characters of a digest that are shown."""


class _Source(NamedTuple):
    registry: Registry
    path: str
    identity: str


class Sources:
    """The registries of a process, and where they came from."""

    def __init__(
        self,
        paths: str,  # as in `Settings.registry`
        loaded: Mapping[str, Registry],  # what was just loaded from them, by app, in their order
    ) -> None:
        names = filter(None, paths.split(os.pathsep))
        self._of = {
            app: _Source(registry, path, identity(registry)) for (app, registry), path in zip(loaded.items(), names, strict=True)
        }

    def path(self, app: str) -> str:
        """Return the file or folder of an app's registry."""
        return self._of[app].path

    def loaded(self, app: str) -> str:
        """Return the identity of what was loaded."""
        return self._of[app].identity

    def on_disk(self, app: str) -> str:
        """Return the identity of what the path has now; empty if it cannot be read."""
        return identity_on_disk(self._of[app].registry, self._of[app].path)


@dataclass(frozen=True, slots=True)
class Agreement:
    """The registry of an app on disk, and those that living processes have loaded."""

    on_disk: str  # identity of the file; empty: it cannot be read
    running: list[Loaded]  # the processes
    faulty: bool  # whether it is known that the file has faults: `deniable serve` has looked at it

    @classmethod
    def of(cls, store: Store, sources: Sources) -> Agreement:
        """Look at the processes of an app, and at its file."""
        every = registries.running(store)
        # Processes of `deniable serve` run from a copy; it says by itself if the file is another one, which has faults.
        file = next((each.digest for each in every if each.role == "file"), None)
        running = [each for each in every if each.role != "file"]
        return cls(sources.on_disk(store.app) if file is None else file, running, file is not None)

    @property
    def differing(self) -> list[Loaded]:
        """The processes that have loaded another registry than the file has now."""
        return [each for each in self.running if each.digest != self.on_disk]

    @property
    def numbers(self) -> dict[str, int]:
        """How many processes there are, by what they do."""
        return dict(Counter(each.role for each in self.running))

    @property
    def processes(self) -> str:
        """The processes in words, such as ``2 servers, 1 worker``."""
        return ", ".join(plural(n, role) for role, n in sorted(self.numbers.items())) or "no process"

    @property
    def doubt(self) -> str:
        """What does not agree, as a sentence for people; empty if all does."""
        if not self.differing:
            return ""
        which = "They run" if len(self.differing) == len(self.running) else f"{len(self.differing)} of them run"
        if self.faulty:
            return f"The registry's file was edited and has faults. {which.replace('They', 'All processes')} with the one before."
        file = "has changed since" if self.on_disk else "cannot be read"
        return f"{self.processes}: {which.lower()} with another registry than the file, which {file}."
