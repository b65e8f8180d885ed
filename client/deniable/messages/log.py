"""The logger `deniable`, without loading `logging`: before an app has loaded it, nobody can hear what is logged.

On people's devices an app that has set up no logging sees nothing. While the app is developed, Python then writes to stderr, as
it does with any library's: see `show`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable


class _Log:
    """Passes lines on to the logger, once there is one."""

    def __init__(self) -> None:
        self.unheard: logging.Handler | None = None  # else our warnings would go to the stderr of an app that set up no logging
        self._visible = False
        self._logger: logging.Logger | None = None

    def show(self) -> None:
        """Let an app that has set up no logging see warnings on its stderr, from now on: it is being developed."""
        import logging  # noqa: F401, PLC0415 - loaded for the developer

        self._visible = True
        logger = self._loaded()
        if logger is not None and self.unheard is not None:
            logger.removeHandler(self.unheard)

    def hide(self) -> None:
        """Let it see none any more."""
        self._visible = False
        logger = self._loaded()
        if logger is not None and self.unheard is not None:
            logger.addHandler(self.unheard)

    def aloud(self, say: Callable[[], None]) -> None:
        """Let such an app see what `say` logs, and nothing more than before of what follows."""
        visible = self._visible
        self.show()
        try:
            say()
        finally:
            if not visible:
                self.hide()

    def debug(self, line: str, *arguments: Any) -> None:
        self._pass(10, line, arguments)

    def info(self, line: str, *arguments: Any) -> None:
        self._pass(20, line, arguments)

    def warning(self, line: str, *arguments: Any) -> None:
        self._pass(30, line, arguments)

    def _pass(self, level: int, line: str, arguments: tuple[Any, ...]) -> None:
        logger = self._loaded()
        if logger is not None:
            logger.log(level, line, *arguments, stacklevel=3)

    def _loaded(self) -> logging.Logger | None:
        # Not imported: a child that is forked while a thread of ours imports would have half a module. The app itself may be amid
        # importing it.
        if self._logger is None:
            loaded: Any = sys.modules.get("logging")
            if hasattr(loaded, "NullHandler"):
                logger = loaded.getLogger("deniable")
                self.unheard = loaded.NullHandler()
                if not self._visible:
                    logger.addHandler(self.unheard)
                self._logger = logger
        return self._logger


log = _Log()
