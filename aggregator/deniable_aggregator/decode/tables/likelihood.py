"""Likelihood: how likely reports of Bloom filters are under each value.

`deniable_aggregator.decode.tables.joint` uses the likelihoods of several variables to estimate their joint distribution.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from deniable.mechanisms.texts.rappor import Bloom


_CHUNK = 1 << 21  # numbers that an intermediate array holds at a time
_IMPOSSIBLE = -1e4  # stands for the logarithm of 0


def masks(mechanism: Bloom, values: Sequence[int]) -> NDArray[np.uint8]:
    """Return the filters of values in every cohort, as `bit_likelihood` takes them, (cohorts, values, bytes)."""
    filters = [mechanism.filter(cohort, value) for cohort in range(mechanism.cohorts) for value in values]
    return pack(filters, mechanism.bits).reshape(mechanism.cohorts, len(values), -1)


def bit_likelihood(
    cohorts: NDArray[np.int64],  # (n,): the cohort of each report
    bits: NDArray[np.uint8],  # (n, bytes): bit i of a report is bit i % 8 of byte i // 8; padding is zero
    masks: NDArray[np.uint8],  # (cohorts, candidates, bytes): the candidates' filters, their bits in the same places
    *,
    # p, q: probabilities that a 0 and a 1 of the filter is reported as 1, 0 <= p < q <= 1, after both of RAPPOR's steps: p* and
    # q*
    p: float | Fraction,
    q: float | Fraction,
    # (cohorts, width): the share of ones in the reports of people who hold no candidate (`other_rates`). They get one more
    # column, which treats the bits of their reports as independent.
    other: NDArray[np.float64] | None = None,
) -> NDArray[np.float32]:
    """Compute how likely each report of a noisy Bloom filter is under each candidate, (n, candidates), 1 for the likeliest."""
    # A report that no candidate could have sent, which happens only without noise, has zeros.
    if masks.ndim != 3 or bits.ndim != 2 or cohorts.shape != bits.shape[:1] or masks.shape[2] != bits.shape[1]:  # noqa: PLR2004
        wrong = f"reports have the shapes {cohorts.shape} and {bits.shape}, filters {masks.shape}"
        raise ParameterError(f"{wrong}: give (n,) and (n, bytes), and (cohorts, candidates, bytes)")
    if not 0 <= p < q <= 1:
        raise ParameterError("p and q: write probabilities with p below q", (float(p), float(q)))
    if len(cohorts) and not 0 <= cohorts.min() <= cohorts.max() < len(masks):
        outside = int(cohorts.min()) if cohorts.min() < 0 else int(cohorts.max())
        raise ParameterError(f"cohort: write a whole number from 0 to {len(masks) - 1}", outside)
    if other is not None and (len(other) != len(masks) or (other.shape[1] + 7) // 8 != bits.shape[1]):
        raise ParameterError(f"rates of the others have the shape {other.shape}: give ({len(masks)}, width)")
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
    counts: NDArray[np.int64],  # (cohorts, width): reports of each cohort that set each bit
    reports: NDArray[np.int64],  # (cohorts,)
    masks: NDArray[np.uint8],  # (cohorts, candidates, bytes): the known strings' filters
    # (candidates,): their shares, as estimated from this variable alone; negative ones count as 0
    frequency: NDArray[np.float64],
    *,
    # p, q: as for `bit_likelihood`
    p: float | Fraction,
    q: float | Fraction,
) -> NDArray[np.float64]:
    """Estimate how often each bit is 1 in reports of people who hold none of the known strings, (cohorts, width), in [p, q]."""
    # The bit rates of a cohort are those of known strings and of others, mixed by their shares. This subtracts the former. If the
    # known strings leave nobody, the rates are those of all reports of the cohort.
    p, q = float(p), float(q)
    shares = np.maximum(frequency, 0)
    rates = counts / np.maximum(reports, 1)[:, None]
    filters = np.unpackbits(masks, axis=2, count=counts.shape[1], bitorder="little")
    known = p * shares.sum() + (q - p) * np.einsum("jvb,v->jb", filters, shares)
    left = 1 - shares.sum()
    return np.clip((rates - known) / left if left > 0 else rates, min(p, q), max(p, q))


def pack(numbers: Iterable[int], width: int) -> NDArray[np.uint8]:
    """Write bits held as integers as rows of bytes, (numbers, ceil(width / 8)): bit i in bit i % 8 of byte i // 8."""
    size = -(-width // 8)
    return np.frombuffer(b"".join(number.to_bytes(size, "little") for number in numbers), np.uint8).reshape(-1, size)


def _log(share: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(share, where=share > 0, out=np.full(share.shape, _IMPOSSIBLE))
