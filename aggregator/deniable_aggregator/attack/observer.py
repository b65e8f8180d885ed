"""An observer of one device: what all its reports together reveal about its answer, and what they can reveal at most.

The observer sees every report, knows which device sent it, and knows the mechanism fully. The distribution of kept responses is
computed from the mechanism's own code, by walking every draw as a proof does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import log2
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp, xlog1py, xlogy

from deniable.errors import ParameterError
from deniable.proof import distribution
from deniable.source import ONE, ZERO, Source
from deniable_aggregator import tally
from deniable_aggregator.decode.tables.payload_likelihood import likelihood

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism
    from deniable.mechanisms.permanent import Permanent

    Floats = NDArray[np.float64]

LARGEST_DOMAIN = 256
"""Most values of a metric: walking every draw of more would take long."""

_OUTPUTS = 1 << 22  # probabilities of kept responses that the computation of a bound sums at most
_TIE = 1e-9  # logarithms of likelihoods closer than this differ by rounding alone


class _Alike(Source):
    """A source that draws all bits of a word alike: each bit has its probability, and a walk over all draws is short.

    It is right for one bit at a time, so it is for mechanisms whose bits are independent.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def bernoulli(self, num: int, den: int) -> bool:
        return self._source.bernoulli(num, den)

    def below(self, n: int) -> int:
        return self._source.below(n)

    def bits(self, num: int, den: int, count: int) -> bytes:
        return (ONE if self.bernoulli(num, den) else ZERO) * count


@dataclass(frozen=True, slots=True)
class Bound:
    """How often the best possible observer is right."""

    success: float  # probability of a right guess, in (0, 1]
    exact: bool  # Whether an observer of the kept response is right so often. If not, this is an upper bound.


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """The two steps of a permanent mechanism in one row."""

    # Indices: (values, width), the probability of each permanent response. Bits: (values, width), of a permanent 1.
    permanent: Floats
    # Indices: (width, width), the probability of each report of a response. Bits: (2, width), of a reported 1 for a permanent 0,
    # and for a permanent 1.
    instant: Floats


@dataclass(frozen=True, eq=False)
class Observer:
    """Guesses the likeliest answer from all reports of a device."""

    mechanism: Mechanism  # what the device runs
    prior: Sequence[int] = ()  # weight of each value before any report, whole numbers above 0; by default all are equal
    _known: dict[int, _Steps] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        size = self.mechanism.domain_size
        if size > LARGEST_DOMAIN:
            raise ParameterError(f"domain_size: an observer guesses among {LARGEST_DOMAIN} values at most; use fewer", size)
        if self.prior and (len(self.prior) != size or min(self.prior) < 1):
            raise ParameterError(f"prior: write a whole number above 0 for each of the {size} values", tuple(self.prior))
        object.__setattr__(self, "prior", tuple(self.prior) or (1,) * size)

    @property
    def chances(self) -> Floats:
        """(domain_size,), the probability of each value before any report."""
        weights = np.array(self.prior, np.float64)
        return np.asarray(weights / weights.sum())

    def fresh(
        self,
        payloads: bytes,  # all reports of the device in their order, one after another
        after: Sequence[int],  # numbers of reports, each in [0, reports], ascending
    ) -> Floats:
        """Compute the log-likelihood, up to a constant, of the first reports, each randomised anew; (after, values)."""
        logs = np.log(likelihood(self.mechanism, payloads), dtype=np.float64)
        sums = np.vstack([np.zeros((1, logs.shape[1])), logs.cumsum(axis=0)])
        return np.asarray(sums[np.asarray(after)])

    def permanent(
        self,
        # payloads, after: as for `fresh`
        payloads: bytes,
        after: Sequence[int],
    ) -> Floats:
        """Compute the log-likelihood, as `fresh`, of reports that are copies of one permanent response, all of one row."""
        # This is a sum over the responses that the device may keep: over all indices or, as bits are independent, over both
        # states of each bit.
        layout = self.mechanism.layout
        size = layout.payload_size
        counted, logs = tally.empty(layout), np.zeros((len(after), self.mechanism.domain_size))
        for place, (begin, end) in enumerate(pairwise((0, *after))):
            if begin < end:
                counted = tally.merge(counted, tally.count(layout, payloads[size * begin : size * end]))
            if end:
                rows = np.flatnonzero(counted.reports)
                if len(rows) > 1:
                    wrong = f"the payloads are in {len(rows)} rows, and a device that keeps its response reports in one"
                    raise ParameterError(f"{wrong}: give payloads of one device")
                logs[place] = self._logs(self._steps(int(rows[0])), counted.counts[rows[0]], int(counted.reports[rows[0]]))
        return logs

    def _logs(self, steps: _Steps, counts: NDArray[np.int64], reports: int) -> Floats:
        if self.mechanism.layout.kind == "index":
            copies = xlogy(counts, steps.instant).sum(axis=1)
            return np.asarray(logsumexp(copies, b=steps.permanent, axis=1))
        zero, one = xlogy(counts, steps.instant) + xlog1py(reports - counts, -steps.instant)
        with np.errstate(divide="ignore"):
            return np.asarray(np.logaddexp(np.log(steps.permanent) + one, np.log1p(-steps.permanent) + zero).sum(axis=1))

    def guess(
        self,
        logs: Floats,  # (domain_size,), as `fresh` and `permanent` give it, or the sum of several
        source: Source,  # where chance comes from
    ) -> int:
        """Return the likeliest value, and a random one of several that are equally likely."""
        posterior = logs + np.log(self.chances)
        best = np.flatnonzero(posterior >= posterior.max() - _TIE)
        return int(best[source.below(len(best))])

    def bound(self) -> Bound:
        """Compute how often the best observer is right who sees the kept response itself; no number of reports reveals more."""
        # It is exact if the kept responses can be summed over: for each, the largest joint probability of a value and the
        # response, averaged over rows. Otherwise it is the bound that `epsilon_permanent` gives.
        permanent, chances = self._permanent, self.chances
        rows = permanent.layout.rows
        if permanent.layout.kind == "index":
            if rows * permanent.layout.width * len(chances) <= _OUTPUTS:
                means = [(chances[:, None] * self._steps(row).permanent).max(axis=0).sum() for row in range(rows)]
                return Bound(float(np.mean(means)), exact=True)
        else:
            bounds = [_bits_bound(self._steps(row).permanent, chances, _OUTPUTS // rows) for row in range(rows)]
            if None not in bounds:
                return Bound(float(np.mean(np.array(bounds))), exact=True)
        most = chances.max()
        return Bound(float(most / (most + (1 - most) * np.exp(-permanent.epsilon_permanent))), exact=False)

    @property
    def _permanent(self) -> Permanent:
        permanent = self.mechanism.in_two_steps
        if permanent is None:
            raise ParameterError("mechanism: choose a permanent one, whose response is kept", self.mechanism.name)
        return permanent

    def _steps(self, row: int) -> _Steps:
        if row not in self._known:
            self._known[row] = self._walked(self._permanent, row)
        return self._known[row]

    def _walked(self, permanent: Permanent, row: int) -> _Steps:
        layout, width = permanent.layout, permanent.layout.width
        index = layout.kind == "index"
        read = _index_chances if index else _bit_chances

        def chances(draw: Callable[[Source], bytes]) -> Floats:
            masses = distribution(draw if index else lambda tape: draw(_Alike(tape)))
            return read({layout.unpack(payload)[1]: float(mass) for payload, mass in masses.items()}, width)

        # Values with one response key have the same distribution, so only one of them is walked.
        keys = [permanent.response_key(row, value) for value in range(permanent.domain_size)]
        holders = {key: value for value, key in enumerate(keys)}
        walked = {
            key: chances(lambda source, v=value: layout.pack(row, permanent.respond_permanently(row, v, source)))  # type: ignore[misc]
            for key, value in holders.items()
        }
        responses = range(width) if index else (0, (1 << width) - 1)
        instant = [chances(lambda source, k=response: permanent.respond_instantly(row, k, source)) for response in responses]  # type: ignore[misc]
        return _Steps(np.array([walked[key] for key in keys]), np.array(instant))


def _index_chances(masses: dict[int, float], width: int) -> Floats:
    return np.array([masses.get(index, 0.0) for index in range(width)])


def _bit_chances(masses: dict[int, float], width: int) -> Floats:
    return np.array([sum(mass for bits, mass in masses.items() if bits >> bit & 1) for bit in range(width)])


def _bits_bound(ones: Floats, chances: Floats, outputs: int) -> float | None:
    """Compute how often the best guess from independent bits is right; None if the sum is too long."""
    telling = ones[:, np.ptp(ones, axis=0) > 0]  # a bit with the same distribution for all values says nothing
    if telling.shape[1] <= log2(outputs / len(chances)):
        joint = chances[:, None]
        for one in telling.T:
            joint = np.hstack([joint * (1 - one[:, None]), joint * one[:, None]])
        return float(joint.max(axis=0).sum())
    own, others = ones.diagonal(), ones[~np.eye(*ones.shape, dtype=np.bool_)]
    if ones.shape[0] == ones.shape[1] and not (np.ptp(own) or np.ptp(others) or np.ptp(chances)) and own[0] > others[0]:
        # If each value has its own bit: a value whose bit is 1 is likeliest; if no bit is 1, all values are equally likely.
        (p, *_), (q, *_), size = own, others, len(chances)
        none = (1 - q) ** (size - 1)
        return float((p / q * (1 - none * (1 - q)) + (1 - p) * none) / size)
    return None
