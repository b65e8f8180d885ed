"""Decode the files of a google/rappor deployment: its parameters, counts or reports, and candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable.errors import ParameterError
from deniable.exact.epsilon import MAX_EPSILON
from deniable.mechanisms.texts.rappor import GoogleRappor
from deniable.registry import text
from deniable.wire.layout import Layout
from deniable_aggregator import decode, tally
from deniable_aggregator.decode.support_estimate import Supported
from deniable_aggregator.decode.tables import likelihood
from deniable_aggregator.decode.tables.joint import Joint, joint
from deniable_aggregator.rappor import files
from deniable_aggregator.rappor.columns import BitColumn, read
from deniable_aggregator.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from deniable.mechanisms.texts.google_rappor import Params
    from deniable_aggregator.decode.estimate import Estimate

OTHER = "(other)"
"""Category of people who hold none of a variable's candidates."""


class _Bit(NamedTuple):
    p: Fraction
    q: Fraction


def strings(
    params: Params,  # of the collection
    counted: Tally,  # the sum of its reports, of layout (m, k, "bits")
    candidates: Sequence[str],  # different texts
) -> Estimate:
    """Estimate the shares of candidates by regression on the bits of their Bloom filters."""
    mechanism, values = _mechanism(params, candidates)
    return decode.estimate(mechanism, counted, values)


def _mechanism(params: Params, candidates: Sequence[str]) -> tuple[GoogleRappor, list[int]]:
    """Make a mechanism for texts of the candidates' lengths, and return the candidates as values of its domain."""
    length = max((len(candidate.encode()) for candidate in candidates), default=1)
    mechanism = GoogleRappor(
        domain_size=text.domain_size(max(length, 1)),
        epsilon=MAX_EPSILON,
        bits=params.bits,
        hashes=params.hashes,
        cohorts=params.cohorts,
        prob_p=str(params.prob_p),
        prob_q=str(params.prob_q),
        prob_f=str(params.prob_f),
    )
    return mechanism, [text.encode(candidate, length) for candidate in candidates]


def bits(
    params: Params,  # of the collection
    counted: Tally,  # the sum of its reports, of layout (m, k, "bits")
) -> Estimate:
    """Estimate the share of each bit directly: basic RAPPOR, where bit i is candidate i, and Boolean RAPPOR, of one bit."""
    # Cohorts do not matter here and are added up. The estimates are debiased, other than in the original analysis.
    bit, support = _Bit(params.q_star, params.p_star), counted.counts.sum(axis=0)
    return Supported(bit, counted.n, support, total_stderr=_total_stderr(bit, counted.n, support))


def _total_stderr(bit: _Bit, n: int, support: NDArray[np.int64]) -> float:
    """Compute the standard error of the sum of all frequencies: each report has noise in each bit, and at most one true one."""
    if not n:
        return float("nan")
    q, gain = float(bit.q), float(bit.p - bit.q)
    known = min(max((support.sum() / n - len(support) * q) / gain, 0.0), 1.0)
    variance = len(support) * q * (1 - q) + known * gain * (1 - 2 * q) - (known * gain) ** 2
    return float(np.sqrt(variance / n) / gain)


def load_tally(params: Params, *, counts: str | None = None, reports: str | None = None) -> Tally:
    """Read the sum of a collection, from its counts file or its reports file."""
    layout = Layout(params.cohorts, params.bits, "bits")
    if counts is not None:
        return Tally(layout, *files.load_counts(counts, params))
    if reports is not None:
        return Tally(layout, *files.sum_reports(reports, params))
    raise ParameterError("neither counts nor reports are given: give one of them, from which the collection is read")


def load_candidates(path: str) -> list[str]:
    """Read a file of candidates, one to a line."""
    try:
        lines = text.lines(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path}: {text.unreadable(error)}; write one candidate to a line, in UTF-8") from None
    if not lines:
        raise ParameterError(f"{path}: the file is empty; write one candidate to a line")
    first: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line:
            raise ParameterError(f"{path}, line {number}: the line is empty; write a candidate, or remove it")
        if line in first:
            raise ParameterError(f"{path}, line {number}: {line!r} is on line {first[line]} already; list each candidate once")
        first[line] = number
    return lines


@dataclass(frozen=True, slots=True)
class Variable:
    """One of several questions that the same devices reported on, each report randomised on its own."""

    params: Params  # of its collection
    column: str  # heading of the column with its reports
    candidates: tuple[str, ...] = ()  # its strings; none for a Boolean, which has one bit

    def __post_init__(self) -> None:
        if (self.params.bits == 1) == bool(self.candidates):
            raise ParameterError(
                "bits: write 1 for a variable without candidates, and more for one with candidates", self.params.bits
            )

    @property
    def categories(self) -> tuple[str, ...]:
        """What a device may hold: the candidates and `OTHER`, or false and true."""
        return (*self.candidates, OTHER) if self.candidates else ("false", "true")


def associate(
    lines: Iterable[str],  # of a CSV file with headings, one device to a line
    variables: Sequence[Variable],  # two or more
    cohort: str = "cohort",  # heading of the cohort, which is the same for all variables of a device
) -> Joint:
    """Estimate the joint shares of several variables, an axis for each, from their randomised reports."""
    columns = [BitColumn(bits=v.column, width=v.params.bits, cohort=cohort, cohorts=v.params.cohorts) for v in variables]
    reports = read(lines, columns)
    likelihoods = [_likelihood(variable, *own) for variable, own in zip(variables, reports, strict=True)]
    return joint(likelihoods, strata=reports[0][0])


def _likelihood(variable: Variable, cohorts: NDArray[np.int64], reported: NDArray[np.uint8]) -> NDArray[np.float32]:
    params = variable.params
    p, q = params.p_star, params.q_star
    if not variable.candidates:
        masks = np.tile(np.array([[[0], [1]]], np.uint8), (params.cohorts, 1, 1))
        return likelihood.bit_likelihood(cohorts, reported, masks, p=p, q=q)
    mechanism, values = _mechanism(params, variable.candidates)
    rows = cohorts.astype("<u4").view(np.uint8).reshape(-1, 4)[:, : mechanism.layout.row_size]
    counted = tally.count(mechanism.layout, np.hstack([rows, reported]).tobytes())
    shares = np.nan_to_num(decode.estimate(mechanism, counted, values).frequency)
    masks = likelihood.masks(mechanism, values)
    other = likelihood.other_rates(counted.counts, counted.reports, masks, shares, p=p, q=q)
    return likelihood.bit_likelihood(cohorts, reported, masks, p=p, q=q, other=other)
