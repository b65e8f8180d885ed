"""Changes: commands on one key of the store, for a script that runs them together with something else."""

from __future__ import annotations

from typing import NamedTuple


class Change(NamedTuple):
    """A change that is not made yet."""

    key: str  # the key to be changed
    command: str  # The store's command, in capitals. An answer of 0 or nothing means that it changed nothing.
    arguments: tuple[str | int, ...]  # its arguments after the key
