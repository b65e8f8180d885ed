"""Choose the mechanism of the smallest reports among those of nearly the least exact variance, and say why."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.mechanisms.direct import Binary, Grr
from deniable.mechanisms.hadamard import Hadamard
from deniable.mechanisms.local_hash import LocalHash
from deniable.mechanisms.projective import Projective
from deniable.mechanisms.subset import Subset
from deniable.mechanisms.unary import Oue, Sue
from deniable.wire.layout import MAX_REPORT_BYTES

if TYPE_CHECKING:
    from deniable.mechanisms.base import Mechanism

__all__ = ["CANDIDATES", "NEAR", "Choice", "choose", "permanent_candidates"]

CANDIDATES: tuple[type[Mechanism], ...] = (Binary, Grr, Subset, Oue, Sue, Hadamard, LocalHash, Projective)
"""What ``auto`` chooses from, in order of preference where two are equal.

This is part of registry format 1 and must not change: a device and a server of different versions would choose differently.
A mechanism added later is asked for by name.
"""

NEAR = Fraction(51, 50)
"""Times the least variance that a mechanism with smaller reports may have: one percent of the error."""
_MOST_ROWS = 128
"""Of a permanent mechanism: a device keeps one of them for good, and as many as Chrome had cohorts leave many devices to each."""
_WORST = 4
"""Times the variance of a permanent mechanism that is too large, beyond which one that fits is no substitute."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen mechanism, and what it was chosen over.

    Parameters
    ----------
    mechanism
        The one of the smallest reports among those that fit and have nearly the least mean exact variance.
    considered
        Every candidate that exists for the domain and epsilon, best first.
    max_bytes
        Largest payload allowed.
    """

    mechanism: Mechanism
    considered: tuple[Mechanism, ...]
    max_bytes: int

    @property
    def reason(self) -> str:
        """Why this one, in a sentence with figures."""
        chosen = self.mechanism
        least = next(each for each in self.considered if each.layout.payload_size <= self.max_bytes)
        merit = "the least error" if chosen is least else "the smallest report within 1% of the least error"
        words = (
            f"{chosen.name}: standard error {_error(chosen):.3g} / sqrt(n), {_size(chosen)} a report, "
            f"{merit} of {len(self.considered)} mechanisms for {chosen.domain_size} values at epsilon "
            f"{chosen.epsilon:.4g} within {self.max_bytes} bytes"
        )
        for other in self.considered:
            if other is not chosen:
                too_large = ", too large" if other.layout.payload_size > self.max_bytes else ""
                words += f"; {other.name}: {_error(other) / _error(chosen) - 1:+.1%} error, {_size(other)}{too_large}"
        return words


def permanent_candidates() -> tuple[type[Mechanism], ...]:
    """Return what ``auto`` chooses from where permanent responses are kept, likewise frozen; of RAPPOR, only the basic one."""
    # Only devices with such metrics pay for importing them.
    from deniable.mechanisms.l_grr import LGrr  # noqa: PLC0415
    from deniable.mechanisms.l_osue import LOsue  # noqa: PLC0415
    from deniable.mechanisms.loloha import Loloha  # noqa: PLC0415
    from deniable.mechanisms.rappor import Rappor  # noqa: PLC0415

    return LGrr, LOsue, Loloha, Rappor


def _error(mechanism: Mechanism) -> float:
    return sqrt(mechanism.mean_variance)


def _size(mechanism: Mechanism) -> str:
    size = mechanism.layout.payload_size
    return f"{size} byte" if size == 1 else f"{size} bytes"


def choose(
    *,
    domain_size: int,
    epsilon: float | str | Fraction,
    max_bytes: int = MAX_REPORT_BYTES,
    permanent: float | str | Fraction | None = None,
) -> Choice:
    """Choose the smallest report among mechanisms that fit and have at most `NEAR` times the least exact variance.

    The variance is the average over the domain. With permanent responses only equal variances are near enough.

    Parameters
    ----------
    domain_size
        Number of values, at least 2.
    epsilon
        Privacy loss of a report, in nats.
    max_bytes
        Largest payload allowed, in bytes.
    permanent
        Privacy loss of a permanent response, in nats, not less than epsilon; None where none is kept. How many of them a device
        comes to keep has no part in the choice.

    Raises
    ------
    ParameterError
        If no mechanism fits, or of permanent mechanisms none whose error is near that of a larger one.
    """
    candidates = CANDIDATES if permanent is None else permanent_candidates()
    options: dict[str, Any] = {} if permanent is None else {"permanent": permanent}
    considered: list[Mechanism] = []
    first_error: ParameterError | None = None
    for candidate in candidates:
        try:
            made = candidate(domain_size=domain_size, epsilon=epsilon, **options)  # type: ignore[arg-type]
        except ParameterError as error:
            first_error = first_error if candidate is Binary else first_error or error
        else:
            basic = getattr(made, "basic", True)  # other RAPPOR is decoded by regression, and its variance is not known
            if permanent is None or (basic and made.layout.rows <= _MOST_ROWS):
                considered.append(made)
    if not considered and first_error is not None:
        raise first_error
    # sorted() is stable: where variances are equal, the smaller payload and then the order of the candidates decides.
    considered.sort(key=lambda m: (m.mean_variance, m.layout.payload_size))
    fitting = [mechanism for mechanism in considered if mechanism.layout.payload_size <= max_bytes]
    if not fitting:
        raise ParameterError("a mechanism's payload fits in max_report_bytes", max_bytes)
    best, least = considered[0], fitting[0].mean_variance
    if permanent is not None and least > _WORST * best.mean_variance:
        advice = f"raise max_report_bytes to {best.layout.payload_size}, or name rappor, or loloha with its many rows"
        raise ParameterError(
            f"{fitting[0].name} has {_error(fitting[0]) / _error(best):.3g} times the error: {advice}", max_bytes
        )
    # Rows of permanent mechanisms tell devices apart, so a few bytes less are no reason to take one that has more of them.
    near = [mechanism for mechanism in fitting if mechanism.mean_variance <= (NEAR if permanent is None else 1) * least]
    return Choice(min(near, key=lambda m: m.layout.payload_size), tuple(considered), max_bytes)
