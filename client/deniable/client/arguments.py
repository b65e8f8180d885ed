"""What some arguments of a client are, checked before any of them is used. The others are checked where they are read."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.registry.tables import Caps
from deniable.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "segments": (lambda value: hasattr(value, "get"), 'write a dict such as {"platform": "linux"}'),
    "caps": (lambda value: isinstance(value, Caps), "write Caps, such as Caps(epsilon=2)"),
    "state": (lambda value: isinstance(value, str | PathLike), "write the path of a folder, or None to keep nothing"),
    "registry_key": (lambda value: isinstance(value, str), "write the text that `deniable registry keygen` prints"),
    "post": (callable, "write a function that sends a batch"),
    "clock": (callable, "write a function that returns seconds, such as time.time"),
    "source": (lambda value: isinstance(value, Source), "write a deniable.source.Source"),
}
"""By argument whether a value fits, and what to write."""


def check(arguments: Mapping[str, Any]) -> None:
    """Raise `ParameterError` for the first argument of a wrong type. None is the default of all but the clock."""
    for name, (fits, rule) in _RULES.items():
        value = arguments[name]
        if (value is not None or name == "clock") and not fits(value):
            raise ParameterError(f"{name}: {rule}, not an object of type {type(value).__name__}")
