"""What an analyst may learn of exact numbers of reports, by questions that are answered with central noise."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite

from deniable.errors import ParameterError

__all__ = ["Analysts"]

_LARGEST_EPSILON = 20.0
_LONGEST_WINDOW = 3660.0
_DAY = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysts:
    """The budget that each read key has for each metric. Devices have no part in it.

    A plain sum over the questions that touch one report. The window slides: what was spent comes back when it is over, and with
    it room for as much leakage again; it does not take back what the answers before have told.

    Parameters
    ----------
    epsilon
        Nats that one key may spend on any one report in any window; at most 20, and 0 where no such question is answered.
    window
        Days, above 0 and at most 3660.

    Raises
    ------
    ParameterError
        If a number is out of range.
    """

    epsilon: float = 1.0
    window: float = 30

    def __post_init__(self) -> None:
        if not _number(self.epsilon) or not 0 <= self.epsilon <= _LARGEST_EPSILON:
            raise ParameterError(f"epsilon is a number of nats from 0 to {_LARGEST_EPSILON:g}", self.epsilon)
        if not _number(self.window) or not 0 < self.window <= _LONGEST_WINDOW:
            raise ParameterError(f"window is a number of days above 0 and at most {_LONGEST_WINDOW:g}", self.window)

    @property
    def seconds(self) -> int:
        """Length of the window, rounded up."""
        return ceil(self.window * _DAY)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
