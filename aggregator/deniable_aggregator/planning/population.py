"""The population of a rehearsal: which part of it gives which answer, as a file states it or by Zipf's law."""

from __future__ import annotations

import csv
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from deniable.errors import ConfigurationError, ParameterError
from deniable.messages.lookalike import did_you_mean
from deniable.messages.plural import few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from deniable.registry import Metric, Registry

_EXPONENT = 1.1  # of Zipf's law, which shares follow that nobody stated
_MOST_CHOSEN = 0.5  # the share of the most frequent option, where nobody stated it
_MOST_FAULTS = 20  # that a message lists
_ROUNDING = 0.01  # by which shares may miss their sum
_COLUMNS = ["metric", "value", "share"]


def read_shares(path: Path, registry: Registry) -> dict[str, dict[str, float]]:
    """Read the shares of answers to metrics of a registry from a CSV file with the columns metric, value and share."""
    shares: dict[str, dict[str, float]] = {}
    faults: list[str] = []
    with reading(path), path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != _COLUMNS:
            raise ConfigurationError(f"{path}, line 1: write the columns {','.join(_COLUMNS)}")
        for line in reader:
            try:
                _add(shares, registry, line)
            except ConfigurationError as error:
                faults.append(f"{path}, line {reader.line_num}: {error}")
    faults = faults or [f"{path}: {fault}" for id_, stated in shares.items() for fault in _sums(registry.metrics[id_], stated)]
    if faults:
        raise ConfigurationError(in_lines(faults))
    return shares


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say which file cannot be read as CSV, and why."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"{path} cannot be read as CSV in UTF-8: {error}") from None


def in_lines(faults: Sequence[str]) -> str:
    """Write faults of a file one a line, of many the first ones."""
    more = [f"and {len(faults) - _MOST_FAULTS:,} more"] if len(faults) > _MOST_FAULTS else []
    return "\n".join([*faults[:_MOST_FAULTS], *more])


def _sums(metric: Metric, stated: Mapping[str, float]) -> Iterator[str]:
    """Find shares that do not sum to 1. Numbers of people may have any sum, and so may the shares of options."""
    total, shares = sum(stated.values()), stated.values()
    if metric.kind.options or all(share.is_integer() for share in shares) or max(shares) > 1:
        return
    if abs(total - 1) > _ROUNDING:
        yield f"the shares of {metric.id} sum to {total:.4g}: write shares that sum to 1, or how many people give each answer"


def _add(shares: dict[str, dict[str, float]], registry: Registry, line: Mapping[str, str | None]) -> None:
    """Add the share that a line states."""
    id_, written, share = line["metric"] or "", line["value"], _share(line["share"])
    metric = registry.metrics.get(id_)
    if metric is None:
        raise ConfigurationError(f"{registry.file} does not declare metric {id_!r}{did_you_mean(id_, registry.metrics)}")
    if written is None or share is None:
        raise ConfigurationError("write a metric, one value of it, and a share or a number of people, such as 0.25 or 250")
    _position(metric, written)
    of_metric = shares.setdefault(id_, {})
    if written in of_metric:
        raise ConfigurationError(f"the share of {written!r} is stated above: write each value of {id_} once")
    of_metric[written] = share


def _share(written: str | None) -> float | None:
    try:
        share = float(written or "")
    except ValueError:
        return None
    return share if 0 <= share < float("inf") else None


def of_values(metric: Metric, stated: Mapping[str, float]) -> dict[int, float]:
    """Return the stated share of each position. Numbers of people are divided by their sum."""
    shares: dict[int, float] = {}
    for written, share in stated.items():
        position = _position(metric, written)
        shares[position] = shares.get(position, 0.0) + share
    total = sum(shares.values())
    if not total:
        raise ConfigurationError(f"the shares of {metric.id} are all 0")
    return {position: share / total for position, share in shares.items()}


def of_options(metric: Metric, stated: Mapping[str, float] | None) -> NDArray[np.float64]:
    """Return the share of people who choose each option of a set; without statements half of them choose the first."""
    if stated is None:
        shares = falling(len(metric.values))
        return np.asarray(shares / shares[0] * _MOST_CHOSEN)
    if max(stated.values()) > 1:
        raise ConfigurationError(f"{metric.id} is a set: the share of an option is that of the people who choose it, at most 1")
    return np.array([stated.get(str(option), 0.0) for option in metric.values])


def cut(shares: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """Return the share of people whose answer has each option once longer ones are cut, if options are chosen independently."""
    chances = [np.array([1 - share, share]) for share in shares.tolist()]
    before = [*accumulate(chances[:-1], np.convolve, initial=np.ones(1))]
    after = [*accumulate(chances[:0:-1], np.convolve, initial=np.ones(1))][::-1]
    stays = np.minimum(most / np.arange(1, len(shares) + 1), 1.0)  # if so many other options are chosen
    return shares * [float(np.convolve(first, last) @ stays) for first, last in zip(before, after, strict=True)]


def falling(values: int) -> NDArray[np.float64]:
    """Return shares by Zipf's law, which sum to 1."""
    weights = np.arange(1, values + 1) ** -_EXPONENT
    return np.asarray(weights / weights.sum())


def _position(metric: Metric, written: str) -> int:
    """Return the position of an answer, or the place of an option; refuse what the metric does not have."""
    try:
        return metric.positions[written] if metric.kind.options else metric.position(metric.kind.parse(written))
    except (KeyError, ParameterError):
        listed = [metric.label(place) for place in range(len(metric.values))]
        instead = did_you_mean(written, listed) or (f"; write one of {few(listed)}" if listed else "")
        raise ConfigurationError(f"shares are stated of a value that {metric.id} does not have: {written}{instead}") from None
