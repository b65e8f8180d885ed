"""How much privacy a device may spend: in any window of time, and ever."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from deniable.errors import ParameterError

__all__ = ["Budget"]

_LARGEST = 1e6  # nats, or days: far beyond use, and small enough that millionths of it are exact integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A plain sum over all metrics of a device: nothing is recorded that would exceed it.

    The window slides: whatever stretch of its length one looks at, the reports made in it spend at most `per_window`.

    Parameters
    ----------
    window
        Days, above 0.
    per_window
        Nats that may be spent in any window; None for no bound.
    lifetime
        Nats that may be spent ever; None for no bound. Not below `per_window`, of which each metric has its part in the same
        proportion.

    Raises
    ------
    ParameterError
        If a number is out of range, or there is a lifetime and no window's bound.
    """

    window: float = 30
    per_window: float | None = 32
    lifetime: float | None = 320

    def __post_init__(self) -> None:
        for name in self.__slots__:
            number = getattr(self, name)
            if number is None and name != "window":
                continue
            wrong = isinstance(number, bool) or not isinstance(number, int | float)
            if wrong or not isfinite(number) or not 0 < number <= _LARGEST:
                unit = "days" if name == "window" else "nats"
                raise ParameterError(f"{name} is a number of {unit} above 0 and at most {_LARGEST:.0f}", number)
        if self.lifetime is not None and (self.per_window is None or self.lifetime < self.per_window):
            raise ParameterError(f"lifetime goes with per_window, and is not below it: {self.per_window}", self.lifetime)

    def tightened(self, other: Budget) -> Budget:
        """Return the strictest of two in every respect. A longer window with the same sum is stricter."""
        return Budget(
            window=max(self.window, other.window),
            per_window=_least(self.per_window, other.per_window),
            lifetime=_least(self.lifetime, other.lifetime),
        )


def _least(one: float | None, other: float | None) -> float | None:
    bounds = [bound for bound in (one, other) if bound is not None]
    return min(bounds) if bounds else None
