"""Telemetry of command line tools: ask a person once, record what is used, and let them look and change their mind.

>>> from deniable.cli import Telemetry
>>> telemetry = Telemetry("https://PUBLIC_KEY@telemetry.example.org/shop", registry="metrics.toml", version="1.2")
>>> telemetry.ask()  # doctest: +SKIP
>>> telemetry.record_usage(command="build")  # doctest: +SKIP

The command of this package is in `deniable.commands`.
"""

from deniable.cli.telemetry import Telemetry

__all__ = ["Telemetry"]
