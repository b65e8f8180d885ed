"""Environment variables. They can switch the SDK off and tune it. They never make it send more than the app asks for."""

from __future__ import annotations

import os
from typing import Any

from deniable.frozen import fields
from deniable.messages.log import log
from deniable.transport import SenderSettings

_NUMBERS: dict[str, Any] = {"flush_at": int, "flush_interval": float, "queue_size": int, "timeout": float, "max_tries": int}

VARIABLES: dict[str, str] = {
    "DENIABLE_DSN": "",
    "DENIABLE_DISABLED": "",
    "DENIABLE_STATE_DIR": "",
    **{
        f"DENIABLE_{name.upper()}": f"{number:g}"
        for name, number in ((each.name, each.default) for each in fields(SenderSettings))
    },
}
"""The variables that the SDK reads, with their defaults."""


def sender_settings() -> SenderSettings:
    """Read the settings from variables such as ``DENIABLE_FLUSH_AT``. A bad value is logged, and the default is used."""
    chosen: dict[str, Any] = {}
    for name, kind in _NUMBERS.items():
        text = os.environ.get(f"DENIABLE_{name.upper()}")
        if text is None:
            continue
        try:
            number = kind(text)
            SenderSettings(**{name: number})
        except ValueError:  # ParameterError is one
            log.warning("deniable: DENIABLE_%s is %r, so the default is used: write a number above 0", name.upper(), text)
        else:
            chosen[name] = number
    return SenderSettings(**chosen)
