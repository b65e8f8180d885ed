"""The logs of gunicorn and its processes, set by `DENIABLE_LOG_LEVEL` and `DENIABLE_LOG_FORMAT`."""

from __future__ import annotations

import sys
from typing import Any

from gunicorn.glogging import Logger

from deniable.errors import ConfigurationError
from deniable_aggregator.process.logs import LogSettings


class Log(Logger):  # type: ignore[misc] # gunicorn has no types
    """gunicorn's logger, which writes records as all our processes do."""

    def setup(self, cfg: Any) -> None:
        """Set up the logs of the first process; the others inherit them."""
        super().setup(cfg)
        try:
            settings = LogSettings.from_environment()
        except ConfigurationError as error:
            sys.stderr.write(f"{error}\n")
            sys.exit(2)
        settings.apply()
        for handler in (*self.error_log.handlers, *self.access_log.handlers):
            handler.setFormatter(settings.formatter())
