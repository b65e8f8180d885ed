"""Decode what a google/rappor deployment has collected: its parameters, its counts, its candidates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from deniable import text
from deniable.errors import ParameterError
from deniable.layout import Layout
from deniable.mechanisms.rappor import GoogleRappor
from deniable.weight import MAX_EPSILON
from deniable_aggregator import decode, google_files
from deniable_aggregator.estimate import Estimate, Supported
from deniable_aggregator.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from deniable.google_rappor import Params

__all__ = ["bits", "load_candidates", "load_tally", "strings"]


class _Bit(NamedTuple):
    p: Fraction
    q: Fraction


def strings(params: Params, counted: Tally, candidates: Sequence[str]) -> Estimate:
    """Estimate the shares of candidates by regression on the bits of their Bloom filters.

    Parameters
    ----------
    params
        Of the collection.
    counted
        The sum of its reports, of layout (m, k, "bits").
    candidates
        Different texts.

    Raises
    ------
    ParameterError
        If the parameters add no noise, or too little to be stated as an epsilon.
    """
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
    return decode.estimate(mechanism, counted, [text.encode(candidate, length) for candidate in candidates])


def bits(params: Params, counted: Tally) -> Estimate:
    """Estimate the share of each bit by the closed form: basic RAPPOR, where bit i is candidate i, and Boolean, of one bit.

    Cohorts do not matter here and are added up. The estimates are debiased, unlike those of the original's analysis.

    Parameters
    ----------
    params
        Of the collection.
    counted
        The sum of its reports, of layout (m, k, "bits").
    """
    return Supported(_Bit(params.q_star, params.p_star), counted.n, counted.counts.sum(axis=0))


def load_tally(params: Params, *, counts: str | None = None, reports: str | None = None) -> Tally:
    """Read the sum of a collection, from its counts file or its reports file.

    Raises
    ------
    ParameterError
        If the file is malformed, with the line and the rule.
    """
    layout = Layout(params.cohorts, params.bits, "bits")
    if counts is not None:
        return Tally(layout, *google_files.load_counts(counts, params))
    if reports is not None:
        return Tally(layout, *google_files.sum_reports(reports, params))
    raise ParameterError("a collection is read from its counts or its reports", None)


def load_candidates(path: str) -> list[str]:
    """Read a file of candidates, one to a line.

    Raises
    ------
    ParameterError
        If it is not readable UTF-8, empty, or lists a candidate twice.
    """
    try:
        lines = Path(path).read_text("utf-8-sig").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path}: candidates stand in a readable UTF-8 file, one to a line", str(error)) from None
    first: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line:
            raise ParameterError(f"{path}, line {number}: a candidate is a text", line)
        if line in first:
            raise ParameterError(f"{path}, line {number}: a candidate is listed once; this one is on line {first[line]}", line)
        first[line] = number
    return lines
