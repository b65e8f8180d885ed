"""Likelihood: how likely randomised reports are under each value, for payloads and for Bloom filters from other collectors.

`read` reads the latter from a file. `deniable_aggregator.decode.joint` uses the likelihoods of several variables to estimate
their joint distribution.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from deniable.errors import ParameterError
from deniable.mechanisms.base import FrequencyOracle, Scored
from deniable.mechanisms.dbitflip import DBitFlip
from deniable.mechanisms.rappor import Bloom
from deniable.mechanisms.sampled_option import SampledOption, SampledPair
from deniable.mechanisms.unary import Oue, Sue
from deniable.mechanisms.window import Window
from deniable_aggregator import tally
from deniable_aggregator.tally import kernels

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from deniable.mechanisms import Mechanism

_CHUNK = 1 << 21  # numbers that an intermediate array holds at a time
_LISTED = 1 << 16  # most values that a payload is compared with
_IMPOSSIBLE = -1e4  # stands for the logarithm of 0


def likelihood(mechanism: Mechanism, payloads: bytes, values: Sequence[int] | None = None) -> NDArray[np.float32]:
    """Compute how likely each report is under each value.

    Parameters
    ----------
    mechanism
        What the devices ran.
    payloads
        Whole payloads, one after another.
    values
        The values wanted, each in [0, domain_size); by default the whole domain. People with other values are counted under the
        value that looks most alike. So leave out no frequent value, or add a column for the others (`bit_likelihood`).

    Returns
    -------
    ndarray of float32
        (reports, values), each row up to a factor, with 1 as its largest.

    Raises
    ------
    PayloadError
        If no device could have sent a payload.
    ParameterError
        If a value is outside the domain.

    Notes
    -----
    For most mechanisms, one likelihood ratio separates the values that a report supports from the others: the declared `ratio`,
    which is the largest. A report of dBitFlip supports some values, opposes some, and says nothing of the others. Bloom filters
    have a likelihood for each bit. A number between two points of a window may have been rounded to either.
    """
    layout = mechanism.layout
    if reason := tally.sift(layout, payloads)[2]:
        raise reason
    wanted = np.arange(mechanism.domain_size) if values is None else np.asarray(values, object)
    if not len(wanted) or any(not 0 <= value < mechanism.domain_size for value in wanted):
        raise ParameterError("a candidate is a value of the domain", "another number")
    table = np.frombuffer(payloads, np.uint8).reshape(-1, layout.payload_size)
    if isinstance(mechanism, Bloom):
        rows, bits = kernels.widen(table[:, : layout.row_size]).astype(np.int64), table[:, layout.row_size :]
        return bit_likelihood(rows, bits, masks(mechanism, wanted.tolist()), p=mechanism.other, q=mechanism.one)
    if isinstance(mechanism, DBitFlip):
        return _topped(_of_sets(mechanism, table, wanted.astype(np.int64)))
    small = np.float32(1 / mechanism.ratio)
    if isinstance(mechanism, (Oue, Sue)):
        bits = np.unpackbits(table, axis=1, count=layout.width, bitorder="little")[:, wanted.astype(np.int64)]
        return _topped(np.where(bits, np.float32(1), small))
    if mechanism.domain_size > _LISTED:
        raise ParameterError(f"reports of {mechanism.name} are compared with at most {_LISTED} values", mechanism.domain_size)
    seen, places = np.unique(np.ascontiguousarray(table).view(f"V{layout.payload_size}").ravel(), return_inverse=True)
    if isinstance(mechanism, Scored):
        return _topped(_of_scored(mechanism, [layout.unpack(payload.tobytes()) for payload in seen], wanted.tolist()))[places]
    assert isinstance(mechanism, FrequencyOracle)  # noqa: S101 - a mechanism that does not score supports values
    rows_seen = np.full((len(seen), len(wanted)), small, np.float32)
    for place, payload in enumerate(seen):
        held = mechanism.supported(payload.tobytes())
        rows_seen[place, [at for at, value in enumerate(wanted) if value in held]] = 1
    return _topped(rows_seen)[places]


def _of_sets(mechanism: DBitFlip, table: NDArray[np.uint8], values: NDArray[np.int64]) -> NDArray[np.float32]:
    """Compute how much more likely each report is under each value than under a value outside of its set."""
    d, row_size = mechanism.buckets, mechanism.layout.row_size
    firsts = np.fromiter(map(mechanism.first, range(mechanism.layout.rows)), np.int64)
    places = (values - firsts[kernels.widen(table[:, :row_size]).astype(np.int64), None]) % mechanism.domain_size
    bits = np.unpackbits(table[:, row_size:], axis=1, count=d, bitorder="little")
    odds = np.float32(mechanism.one / mechanism.other)
    held = np.where(np.take_along_axis(bits, np.minimum(places, d - 1), axis=1), odds, 1 / odds)
    return np.where(places < d, held, np.float32(1))


def _of_scored(mechanism: Scored, cells: Sequence[tuple[int, int]], values: Sequence[int]) -> NDArray[np.float64]:
    """Compute the probability of what each report says, given its row, under each number or set."""
    if isinstance(mechanism, Window):
        return _of_window(mechanism, np.array([cell for _, cell in cells]), np.array(values, np.int64))
    assert isinstance(mechanism, SampledOption | SampledPair)  # noqa: S101 - no other mechanism scores
    true = np.array([[mechanism.index(value, row) == named for value in values] for row, named in cells])
    return np.where(true, float(mechanism.keep), float(mechanism.other))


def _of_window(mechanism: Window, cells: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute the probability of each cell under each value, which is rounded to one of two points."""
    points, parts = np.divmod(values * (mechanism.points - 1), mechanism.domain_size - 1)
    beyond = cells[:, None] - points  # cells past the first of the lower point's window
    lower, upper = ((shift <= beyond) & (beyond < shift + mechanism.length) for shift in (0, 1))
    part = parts / (mechanism.domain_size - 1)
    mixed = (1 - part) * lower + part * upper
    return float(mechanism.outside) + float(mechanism.inside - mechanism.outside) * mixed


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
        uint8 array (cohorts, candidates, bytes): the candidates' filters, likewise.
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


def _topped(rows: NDArray[Any]) -> NDArray[np.float32]:
    return np.asarray(rows / rows.max(axis=1, keepdims=True), np.float32)


def _log(share: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(share, where=share > 0, out=np.full(share.shape, _IMPOSSIBLE))
