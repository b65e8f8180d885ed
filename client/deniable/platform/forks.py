"""What is called when this process forks."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

if sys.platform == "win32":

    def at_fork(
        *, before: Callable[[], None] = ..., in_parent: Callable[[], None] = ..., in_child: Callable[[], None] = ...
    ) -> None:
        """Do nothing: Windows has no fork."""

else:

    def _nothing() -> None:
        pass

    def at_fork(
        *,
        before: Callable[[], None] = _nothing,
        in_parent: Callable[[], None] = _nothing,
        in_child: Callable[[], None] = _nothing,
    ) -> None:
        """Have functions called before each fork, and after it in the parent and in the child."""
        os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)
