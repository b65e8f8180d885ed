"""How common an answer must be, so that a search by prefixes finds it: see `deniable.mechanisms.texts.prefix`."""

from __future__ import annotations

from math import nan, prod, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple, cast

from deniable.messages.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable.mechanisms import Mechanism
    from deniable.mechanisms.texts.prefix import PrefixTree
    from deniable.registry import Metric

KEEP = 64
"""Most prefixes that a search keeps at a level, and most values that it finds."""

_SHARES = 0.1, 0.01  # for which it is said how many reports are needed
_ALPHA = 0.05
_NORMAL = NormalDist()
_HALVINGS = 60  # as many bits as a share needs
_FITTING = 179 / 256  # bytes that may follow an ASCII character in a text
_DIGITS = 2
_MOST = 1 << 50  # reports


class Cut(NamedTuple):
    """What a value must pass at one level."""

    threshold: float  # least estimated frequency that passes
    stderr: float  # standard error of the estimate of a prefix that nobody has
    reports: int  # about prefixes of this length


def noise(
    chance: float,
    stderr: float,
    reports: int,
    gain: float,  # difference of the probabilities that a report supports the true value, and another one
) -> float:
    """Compute the frequency that the estimate of a prefix that nobody has exceeds with probability `chance`."""
    # E. A. Cornish, R. A. Fisher: Moments and cumulants in the specification of distributions. Rev. Int. Stat. Inst. 5(4), 1938.
    z = -_NORMAL.inv_cdf(chance)
    return z * stderr + max(z * z - 1, 0.0) / (6 * reports * gain)


def absent_stderr(
    mechanism: PrefixTree,
    reports: int,
    confusion: float = 0.0,  # variance that other prefixes add
) -> float:
    """Compute the standard error of the estimate of a prefix that nobody has."""
    q = float(mechanism.q)
    return sqrt(q * (1 - q) / reports / _gain(mechanism) ** 2 + confusion)


def found_half(mechanism: PrefixTree, cuts: Sequence[Cut]) -> float:
    """Compute the share at which a value passes all levels half of the time; nan if it does not even if everybody has it."""
    q, gain = float(mechanism.q), _gain(mechanism)

    def passing(share: float) -> float:
        own = max(share * (1 - 2 * q - share * gain), 0.0) / gain  # what holders add to the variance
        return prod(_NORMAL.cdf((share - cut.threshold) / sqrt(cut.stderr**2 + own / cut.reports)) for cut in cuts)

    if not passing(1.0) >= 0.5:  # noqa: PLR2004 - half of the time
        return nan
    low, high = -1.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if passing(middle) >= 0.5 else (middle, high)  # noqa: PLR2004
    return high


def foreseen(
    metric: Metric,
    mechanism: Mechanism,  # one that `searches`
    reports: int,
    alpha: float = _ALPHA,  # chance that any value found does not exist
) -> float:
    """Compute the share of a value that so many reports find half of the time, if it has no rival; nan if they find none."""
    tree = cast("PrefixTree", mechanism)
    cuts = list(_cuts(tree, reports, alpha, text=metric.max_length > 0))
    return found_half(tree, cuts) if all(cut.reports for cut in cuts) else nan


def needed(metric: Metric, mechanism: Mechanism, share: float) -> int | None:
    """Return from about how many reports a value with this share is found half of the time; None if it never is."""
    low, high = 1, 2
    while not foreseen(metric, mechanism, high) <= share:
        low, high = high, 2 * high
        if high > _MOST:
            return None
    while high - low > max(low // 1000, 1):
        middle = (low + high) // 2
        low, high = (low, middle) if foreseen(metric, mechanism, middle) <= share else (middle, high)
    return int(float(f"{high:.{_DIGITS}g}"))


def outlook(metric: Metric, mechanism: Mechanism) -> str:
    """Say how many reports find an answer, by how many people have it."""
    common, rare = (needed(metric, mechanism, share) for share in _SHARES)
    if common is None:
        return "at this epsilon no number of reports finds an answer"
    more = "" if rare is None else f", and about {rare:,} one that {_SHARES[1]:.0%} have"
    return f"about {common:,} reports find an answer that {_SHARES[0]:.0%} of people have{more}: each half of the time"


def nothing_found(
    metric: Metric,
    mechanism: Mechanism,
    reports: int,
    half: float,  # the share that they find half of the time; nan if they find none
) -> str:
    """Say why a search found no answer, and what it takes."""
    number = plural(reports, "report")
    if half <= _SHARES[0]:
        return f"no answer was found in {number}: one that {100 * half:.2g}% of people have is found half of the time"
    return f"no answer is frequent enough to be found in {number}: {outlook(metric, mechanism)}"


def _gain(mechanism: PrefixTree) -> float:
    return float(mechanism.p - mechanism.q)


def _cuts(mechanism: PrefixTree, reports: int, alpha: float, *, text: bool) -> Iterator[Cut]:
    """Foresee what a value must pass: at each level the noise of prefixes that nobody has, and the confirmation."""
    gain, rows = _gain(mechanism), [len(part) for part in mechanism.parts]
    keep = min(KEEP, max(rows[-1] * (mechanism.width - 1) // 4, 1))
    shorter, survivors = 0, 1
    for length, own in zip((*mechanism.lengths, mechanism.bits), rows, strict=True):
        n = reports * own // mechanism.rows
        if not n:
            yield Cut(nan, nan, 0)
            return
        error = absent_stderr(mechanism, n)
        if length == shorter:  # all bits again: the confirmation
            yield Cut(noise(alpha / survivors, error, n, gain), error, n)
            return
        candidates = survivors * (2 ** (length - shorter) * (_FITTING ** ((length - shorter) / 8) if text else 1))
        if mechanism.stands_out:
            yield Cut(noise(alpha / candidates, error, n, gain), error, n)
        elif candidates > keep:
            yield Cut(noise(keep / candidates, error, n, gain), error, n)
            survivors = keep
        else:
            survivors = int(candidates)
        shorter = length
