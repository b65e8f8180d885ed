"""What analysts may learn of withheld numbers of reports, by questions that are answered with central noise."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from deniable.errors import ParameterError

__all__ = ["Analysts"]

_LARGEST_EPSILON = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysts:
    """The budget that all keys of an app share, for the reports of each month. Devices have no part in it.

    Parameters
    ----------
    epsilon
        Nats that all answers about a month's reports may cost together; at most 20, and 0 where no such question is answered.
    per_key
        How much of that one key may spend.

    Raises
    ------
    ParameterError
        If a number is out of range.
    """

    epsilon: float = 1.0
    per_key: float = 0.5

    def __post_init__(self) -> None:
        for name, nats in zip(("epsilon", "per_key"), astuple(self), strict=True):
            if isinstance(nats, bool) or not isinstance(nats, int | float) or not 0 <= nats <= _LARGEST_EPSILON:
                raise ParameterError(f"{name} is a number of nats from 0 to {_LARGEST_EPSILON:g}", nats)
