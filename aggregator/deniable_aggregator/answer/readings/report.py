"""What one report says: which answers fit it best, and how many times better than the others."""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

from deniable.errors import DeniableError
from deniable_aggregator.answer import figures
from deniable_aggregator.decode.tables.payload_likelihood import likelihood

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deniable.declared import Declared
    from deniable.mechanisms import Mechanism

_MOST_VALUES = 4096  # with which a report is compared
_STEPS = 512  # between which the answers in a wide range are compared
_MOST_NAMED = 3
_ALIKE = 1e-6  # of two likelihoods


def report_says(
    declared: Declared,
    payload: bytes,  # of one report
) -> str:
    """Say which answers fit a report best, and how many times better than the others."""
    positions = _positions(declared)
    try:
        fits = _fits(declared.mechanism, payload, positions) if positions else []
    except DeniableError:  # too wide to compare with every answer
        fits = []
    if not fits:
        return f"one answer fits at most {exp(declared.mechanism.epsilon):.3g} times as well as another"
    best = [place for place, fit in enumerate(fits) if fit >= 1 - _ALIKE]
    worst = [place for place, fit in enumerate(fits) if fit < 1 - _ALIKE]
    if not worst:
        return "nothing: all answers fit alike"
    least = min(fits)
    times = f"{'' if max(fits[place] for place in worst) <= least + _ALIKE else 'up to '}{1 / least:.3g} times as well as"
    metric = declared.metric
    if metric.kind.options and 1 in (len(best), len(worst)):
        place, words = (best[0], ("chosen", "not chosen")) if len(best) == 1 else (worst[0], ("not chosen", "chosen"))
        return f"{_label(declared, positions[place])} {words[0]} fits {times} {words[1]}"
    ordered = metric.axis is not None or metric.kind.ordered
    if ordered and len(best) > 1 and best[-1] - best[0] == len(best) - 1:
        return f"{_label(declared, positions[best[0]])} to {_label(declared, positions[best[-1]])} fit {times} others"
    verb = "fits" if len(best) == 1 else "each fit" if len(best) <= _MOST_NAMED else "fit"
    others = _label(declared, positions[worst[0]]) if len(worst) == 1 else "any other"
    return f"{_listed([_label(declared, positions[place]) for place in best])} {verb} {times} {others}"


def _fits(mechanism: Mechanism, payload: bytes, positions: list[int]) -> list[float]:
    """Return how well each answer fits a report, 1 for the best."""
    named = mechanism.supporting(payload, positions)
    if named is None:
        fits: list[float] = likelihood(mechanism, payload, positions)[0].tolist()
        return fits
    return [1.0 if position in named or not named else 1 / float(mechanism.ratio) for position in positions]


def _positions(declared: Declared) -> list[int]:
    """Return the answers that reports are compared with; none if there are too many."""
    metric, size = declared.metric, declared.mechanism.domain_size
    if metric.kind.options:
        return [] if metric.joint else [0, *(1 << place for place in range(len(metric.values)))]
    if size <= _MOST_VALUES:
        return list(range(size))
    if metric.axis is not None:
        return [place * (size - 1) // _STEPS for place in range(_STEPS + 1)]
    return list(declared.candidates) if len(declared.candidates) <= _MOST_VALUES else []


def _label(declared: Declared, position: int) -> str:
    metric = declared.metric
    if metric.kind.options:
        return figures.quoted(metric.label(position.bit_length() - 1)) if position else "no option"
    if metric.axis is None:
        return figures.quoted(metric.label(position))
    size, at = declared.mechanism.domain_size, metric.axis.number
    if not metric.binned:
        return _number(at(position / (size - 1)), at, metric.unit)
    return f"{_number(at(position / size), at)} to {_number(at((position + 1) / size), at, metric.unit)}"


def _number(value: float, at: Callable[[float], float], unit: str = "") -> str:
    """Write a number of an axis, with digits for a hundredth of its range."""
    return figures.number(value, (at(0), at(0.02)), unit)


def _listed(names: Sequence[str]) -> str:
    if len(names) <= _MOST_NAMED:
        return figures.listed(names)
    return f"{', '.join(names[: _MOST_NAMED - 1])} and {len(names) - _MOST_NAMED + 1} more"
