"""The choice of ``auto``: the mechanism of the smallest reports among those of nearly the least exact variance."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import sqrt
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.frozen import dataclass
from deniable.mechanisms.listed.direct import Binary, Grr
from deniable.mechanisms.listed.hadamard import Hadamard
from deniable.mechanisms.listed.local_hash import LocalHash
from deniable.mechanisms.listed.projective import Projective
from deniable.mechanisms.listed.subset import Subset
from deniable.mechanisms.listed.unary import Oue, Sue
from deniable.wire.layout import MAX_REPORT_BYTES

if TYPE_CHECKING:
    from deniable.mechanisms.base import FrequencyOracle

CANDIDATES: tuple[type[FrequencyOracle], ...] = (Binary, Grr, Subset, Oue, Sue, Hadamard, LocalHash, Projective)
"""The candidates of ``auto``. Of two equal ones it prefers the first.

They are part of registry format 1 and must not change: a device and a server of different versions would choose differently. A
mechanism added later must be declared by name.
"""

NEAR = Fraction(51, 50)
"""A mechanism with smaller reports may have so many times the least variance: one percent more error."""
_MOST_ROWS = 128
"""Most rows of a permanent mechanism. A device keeps its row for good, and many devices must share it. Chrome had 128 cohorts."""
_WORST = 4
"""If the best permanent mechanism does not fit, one that fits may have at most so many times its variance."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen mechanism, and the other candidates."""

    mechanism: FrequencyOracle  # the chosen mechanism
    considered: tuple[FrequencyOracle, ...]  # every candidate that exists for the domain and epsilon, the most exact first
    max_bytes: int  # largest payload allowed

    @property
    def figures(self) -> str:
        """Its error and the size of its reports, in words."""
        return f"standard error {_error(self.mechanism):.3g} / sqrt(n), {_size(self.mechanism)} a report"

    @property
    def reason(self) -> str:
        """Why this mechanism was chosen, in words and figures."""
        chosen = self.mechanism
        least = next(each for each in self.considered if each.layout.payload_size <= self.max_bytes)
        merit = "the least error" if chosen is least else "the smallest report within 1% of the least error"
        return (
            f"{merit} of {len(self.considered)} mechanisms for {chosen.domain_size} values at epsilon "
            f"{chosen.epsilon:.4g} within {self.max_bytes} bytes"
        )

    @property
    def others(self) -> str:
        """The error of each other candidate beside that of the chosen one, and its size where that differs."""
        return ", ".join(self._beside(each) for each in self.considered if each is not self.mechanism)

    def _beside(self, other: FrequencyOracle) -> str:
        size = other.layout.payload_size
        same = size == self.mechanism.layout.payload_size
        in_bytes = "" if same else f" in {_size(other)}{', too large' if size > self.max_bytes else ''}"
        return f"{other.name} {_error(other) / _error(self.mechanism) - 1:+.1%}{in_bytes}"


def permanent_candidates() -> tuple[type[FrequencyOracle], ...]:
    """Return the candidates of ``auto`` for permanent responses. They must not change. Of RAPPOR it is only basic RAPPOR."""
    # Imported here, because only devices with such metrics need them.
    from deniable.mechanisms.permanent.l_grr import LGrr  # noqa: PLC0415
    from deniable.mechanisms.permanent.l_osue import LOsue  # noqa: PLC0415
    from deniable.mechanisms.permanent.loloha import Loloha  # noqa: PLC0415
    from deniable.mechanisms.texts.rappor import Rappor  # noqa: PLC0415

    return LGrr, LOsue, Loloha, Rappor


def _error(mechanism: FrequencyOracle) -> float:
    return sqrt(mechanism.mean_variance)


def _size(mechanism: FrequencyOracle) -> str:
    size = mechanism.layout.payload_size
    return f"{size} byte" if size == 1 else f"{size} bytes"


@lru_cache(maxsize=1024)  # the metrics of an app are often alike
def choose(
    *,
    domain_size: int,
    epsilon: float | str | Fraction,
    max_bytes: int = MAX_REPORT_BYTES,
    permanent: float | str | Fraction | None = None,
) -> Choice:
    """Choose the mechanism of the smallest reports among those that fit and have at most `NEAR` times the least exact variance.

    The variance is the mean over the domain. Among permanent mechanisms only those of equal variance compete by size.

    Raise `ParameterError` if no mechanism fits, or if all permanent mechanisms that fit are far less exact than a larger one.

    Parameters
    ----------
    domain_size
        Number of values, at least 2.
    epsilon
        Privacy loss of a report, in nats.
    max_bytes
        Largest payload allowed, in bytes.
    permanent
        Privacy loss of a permanent response in nats, not less than epsilon; None if none is kept. The number of kept responses
        does not influence the choice.
    """
    candidates = CANDIDATES if permanent is None else permanent_candidates()
    options: dict[str, Any] = {} if permanent is None else {"permanent": permanent}
    considered: list[FrequencyOracle] = []
    first_error: ParameterError | None = None
    for candidate in candidates:
        try:
            mechanism = candidate(domain_size=domain_size, epsilon=epsilon, **options)  # type: ignore[arg-type]
        except ParameterError as error:
            first_error = first_error if candidate is Binary else first_error or error
        else:
            # RAPPOR that is not basic is decoded by regression: its variance is unknown.
            basic = getattr(mechanism, "basic", True)
            if permanent is None or (basic and mechanism.layout.rows <= _MOST_ROWS):
                considered.append(mechanism)
    if not considered and first_error is not None:
        raise first_error
    # Of equal variances the smaller payload comes first. The sort is stable: of equal payloads the earlier candidate comes first.
    considered.sort(key=lambda m: (m.mean_variance, m.layout.payload_size))
    fitting = [mechanism for mechanism in considered if mechanism.layout.payload_size <= max_bytes]
    if not fitting:
        raise ParameterError("max_report_bytes: write more; no mechanism has so short a report", max_bytes)
    best, least = considered[0], fitting[0].mean_variance
    if permanent is not None and least > _WORST * best.mean_variance:
        advice = f"raise max_report_bytes to {best.layout.payload_size}, or name rappor, or loloha with its many rows"
        raise ParameterError(
            f"max_report_bytes: {advice}; {fitting[0].name} has {_error(fitting[0]) / _error(best):.3g} times the error",
            max_bytes,
        )
    # Rows of permanent mechanisms tell devices apart. A few bytes less do not justify more rows.
    near = [mechanism for mechanism in fitting if mechanism.mean_variance <= (NEAR if permanent is None else 1) * least]
    return Choice(min(near, key=lambda m: m.layout.payload_size), tuple(considered), max_bytes)
