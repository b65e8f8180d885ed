"""Likelihood: how likely reports of Bloom filters are under each value. `read` reads those of other collectors from a file.

`deniable_aggregator.decode.joint` uses the likelihoods of several variables to estimate their joint distribution.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from deniable.mechanisms.rappor import Bloom


_CHUNK = 1 << 21  # numbers that an intermediate array holds at a time
_IMPOSSIBLE = -1e4  # stands for the logarithm of 0


def masks(mechanism: Bloom, values: Sequence[int]) -> NDArray[np.uint8]:
    """Return the filters of values in every cohort, as `bit_likelihood` takes them.

    Returns
    -------
    ndarray of uint8
        (cohorts, values, bytes).
    """
    filters = [mechanism.filter(cohort, value) for cohort in range(mechanism.cohorts) for value in values]
    return pack(filters, mechanism.bits).reshape(mechanism.cohorts, len(values), -1)


def bit_likelihood(
    cohorts: NDArray[np.int64],
    bits: NDArray[np.uint8],
    masks: NDArray[np.uint8],
    *,
    p: float | Fraction,
    q: float | Fraction,
    other: NDArray[np.float64] | None = None,
) -> NDArray[np.float32]:
    """Compute how likely each report of a noisy Bloom filter is under each candidate.

    Parameters
    ----------
    cohorts
        int array (n,): the cohort of each report.
    bits
        uint8 array (n, bytes): bit i of a report is bit ``i % 8`` of byte ``i // 8``; padding is zero.
    masks
        uint8 array (cohorts, candidates, bytes): the candidates' filters, their bits in the same places.
    p, q
        Probabilities that a 0 and a 1 of the filter is reported as 1, ``0 <= p < q <= 1``. They include both of RAPPOR's steps:
        p* and q*.
    other
        float array (cohorts, width), or None: the share of ones in the reports of people who hold no candidate (`other_rates`).
        They get the last column, which treats the bits of their reports as independent.

    Returns
    -------
    ndarray of float32
        (n, candidates), or one more with `other`; each row up to a factor, with 1 as its largest. A report that no candidate
        could have sent, which happens only without noise, has zeros.

    Raises
    ------
    ParameterError
        If shapes do not agree, a cohort has no filters, or a number is not a probability.
    """
    if masks.ndim != 3 or bits.ndim != 2 or cohorts.shape != bits.shape[:1] or masks.shape[2] != bits.shape[1]:  # noqa: PLR2004
        shapes = cohorts.shape, bits.shape, masks.shape
        raise ParameterError("reports are (n,) and (n, bytes), filters (cohorts, candidates, bytes)", shapes)
    if not 0 <= p < q <= 1:
        raise ParameterError("p and q are probabilities, and p is below q", (float(p), float(q)))
    if len(cohorts) and not 0 <= cohorts.min() <= cohorts.max() < len(masks):
        raise ParameterError(f"a cohort is a whole number in [0, {len(masks)})", (int(cohorts.min()), int(cohorts.max())))
    if other is not None and (len(other) != len(masks) or (other.shape[1] + 7) // 8 != bits.shape[1]):
        raise ParameterError(f"the others' rates are ({len(masks)}, width)", other.shape)
    width = 8 * bits.shape[1] if other is None else other.shape[1]
    zero_seen, zero_missed, one_seen, one_missed = _log(np.array([p, 1 - p, q, 1 - q], np.float64))
    answer = np.empty((len(bits), masks.shape[1] + (other is not None)), np.float32)
    order = np.argsort(cohorts, kind="stable")
    bounds = np.searchsorted(cohorts[order], np.arange(len(masks) + 1))
    step = max(1, _CHUNK // (8 * bits.shape[1] + masks.shape[1]))
    for cohort, (begin, end) in enumerate(pairwise(bounds)):
        if begin == end:
            continue
        filters = np.unpackbits(masks[cohort], axis=1, bitorder="little").astype(np.float32)
        ones = filters.sum(axis=1, dtype=np.float64)
        for start in range(begin, end, step):
            chosen = order[start : min(start + step, end)]
            report = np.unpackbits(bits[chosen], axis=1, bitorder="little").astype(np.float32)
            common = (report @ filters.T).astype(np.float64)  # whole numbers, so single precision is exact
            missed, false = ones - common, report.sum(axis=1, dtype=np.float64)[:, None] - common
            logs = common * one_seen + missed * one_missed + false * zero_seen + (width - ones - false) * zero_missed
            if other is not None:
                exact = report[:, :width].astype(np.float64)
                logs = np.column_stack([logs, exact @ _log(other[cohort]) + (1 - exact) @ _log(1 - other[cohort])])
            top = logs.max(axis=1, keepdims=True)
            answer[chosen] = np.where(top > _IMPOSSIBLE / 2, np.exp(logs - top), 0)
    return answer


def other_rates(
    counts: NDArray[np.int64],
    reports: NDArray[np.int64],
    masks: NDArray[np.uint8],
    frequency: NDArray[np.float64],
    *,
    p: float | Fraction,
    q: float | Fraction,
) -> NDArray[np.float64]:
    """Estimate how often each bit is 1 in the reports of people who hold none of the known strings.

    Parameters
    ----------
    counts
        (cohorts, width): reports of each cohort that set each bit; a tally's counts.
    reports
        (cohorts,): reports of each cohort.
    masks
        uint8 array (cohorts, candidates, bytes): the known strings' filters.
    frequency
        (candidates,): their shares, as estimated from this variable alone; negative ones count as 0.
    p, q
        As for `bit_likelihood`.

    Returns
    -------
    ndarray of float
        (cohorts, width), in [p, q], as for any mixture of strings. If the known strings leave nobody, the rates of all reports of
        the cohort.

    Notes
    -----
    The bit rates of a cohort are those of known strings and of others, mixed by their shares. This subtracts the former.
    """
    p, q = float(p), float(q)
    shares = np.maximum(frequency, 0)
    rates = counts / np.maximum(reports, 1)[:, None]
    filters = np.unpackbits(masks, axis=2, count=counts.shape[1], bitorder="little")
    known = p * shares.sum() + (q - p) * np.einsum("jvb,v->jb", filters, shares)
    left = 1 - shares.sum()
    return np.clip((rates - known) / left if left > 0 else rates, min(p, q), max(p, q))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The columns of a file of reports that belong to one variable."""

    # Heading of the column with the report's bits: `width` digits 0 or 1, the highest bit first, so bit 0 is the last digit. Or
    # `0x` and hexadecimal digits of the same number. Of width 1 also `false` and `true`.
    bits: str
    width: int  # bits of a report, at least 1
    cohort: str | None = None  # heading of the column with the cohort, a whole number; None if there is one cohort
    cohorts: int = 1  # number of cohorts

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ParameterError("a report has at least 1 bit", self.width)
        if self.cohorts < 1 or (self.cohort is None and self.cohorts > 1):
            raise ParameterError("there is at least 1 cohort, and a column for it where there are more", self.cohorts)

    def number(self, text: str) -> int:
        """Read the bits of a report as an integer, bit i being bit i."""
        if len(text) == self.width and not text.strip("01"):
            return int(text, 2)
        if self.width == 1 and text.lower() in ("false", "true"):
            return int(text.lower() == "true")
        try:
            number = int(text, 16) if text[:2].lower() == "0x" and "_" not in text else -1
        except ValueError:
            number = -1
        if not 0 <= number < 1 << self.width:
            digits = f"{self.bits} is {self.width} digits 0 or 1, highest bit first"
            raise ParameterError(f"{digits}, or 0x and a hexadecimal number below 2^{self.width}", text)
        return number

    def place(self, text: str) -> int:
        """Read a cohort."""
        if not (text.isascii() and text.isdigit() and int(text) < self.cohorts):
            raise ParameterError(f"{self.cohort} is a whole number in [0, {self.cohorts})", text)
        return int(text)


def read(
    lines: Iterable[str],  # of comma-separated values, the first of which has the headings; a file opened with `newline=""`
    columns: Sequence[Column],  # the variables
) -> list[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
    """Read randomised reports of several variables, one device to a line.

    Returns
    -------
    list of (ndarray of int64, ndarray of uint8)
        For each variable the cohorts (n,) and the bits (n, ceil(width / 8)), as `bit_likelihood` has them.

    Raises
    ------
    ParameterError
        If a heading is missing or a line breaks a rule; the message has the line number.
    """
    table = csv.reader(lines, strict=True)
    headings = [heading.strip() for heading in next(table, [])]
    for column in columns:
        for heading in (column.bits, column.cohort):
            if heading is not None and headings.count(heading) != 1:
                raise ParameterError(f"line 1: there is one heading {heading!r}", ",".join(headings))
    places = [(c, headings.index(c.bits), None if c.cohort is None else headings.index(c.cohort)) for c in columns]
    cohorts: list[list[int]] = [[] for _ in columns]
    bits: list[list[int]] = [[] for _ in columns]
    try:
        for row in table:
            if not row:
                continue
            if len(row) != len(headings):
                raise ParameterError(f"a line has {len(headings)} fields", len(row))  # noqa: TRY301 - its line is added below
            for number, (column, at, cohort) in enumerate(places):
                cohorts[number].append(0 if cohort is None else column.place(row[cohort].strip()))
                bits[number].append(column.number(row[at].strip()))
    except ParameterError as error:
        raise ParameterError(f"line {table.line_num}: {error.rule}", error.value) from None
    except csv.Error as error:
        raise ParameterError(f"line {table.line_num}: fields are comma-separated values", str(error)) from None
    return [(np.array(where, np.int64), pack(what, c.width)) for where, what, c in zip(cohorts, bits, columns, strict=True)]


def pack(numbers: Iterable[int], width: int) -> NDArray[np.uint8]:
    """Write bits held as integers, bit i being bit i, as rows of bytes: bit ``i % 8`` of byte ``i // 8``.

    Returns
    -------
    ndarray of uint8
        (numbers, ceil(width / 8)).
    """
    size = -(-width // 8)
    return np.frombuffer(b"".join(number.to_bytes(size, "little") for number in numbers), np.uint8).reshape(-1, size)


def _log(share: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(share, where=share > 0, out=np.full(share.shape, _IMPOSSIBLE))
