"""A distinguisher of any randomizer: it sees only what calls give, and bounds epsilon from below.

It looks for an event that is likelier for one input than for another. A quarter of the calls teaches it a score, and another
quarter at which score the event begins. The other half counts how often the event happens. If its probability is at least P for
one input and at most Q for the other, epsilon is at least ln(P / Q).

What is learned does not touch the half that counts. So the bound holds with its confidence whatever was learned. A high bound
shows a leak. A low one shows nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import permutations
from math import comb
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import chdtrc

from deniable.errors import ParameterError
from deniable_aggregator import checks
from deniable_aggregator.attack.outcome import observe, parts, shortened
from deniable_aggregator.decode.binomial import clopper_pearson

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.attack.outcome import Outcome

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

LEAST_CALLS = 1000
"""Of each input: with fewer hardly any event is bounded."""

CALLS_AT_ONCE = 1000
"""Calls between two words about progress."""

_BINS = 64  # into which the numbers of a part are sorted, if it has more
_THRESHOLDS = 512  # that are tried at most
_FALSE = 0.1  # parts that count though they depend on no input, on average
_NAMED = 3  # outputs or parts that an event names at most
_PRIOR = 0.5  # calls that are added to each count, so that no ratio is infinite
_SAME_PAIR = 4  # bounds of a pair of inputs: two in each direction


@dataclass(frozen=True, slots=True)
class Evidence:
    """The event that says most about epsilon, and how often it happened in the calls that count."""

    # likely, unlikely: numbers of the two inputs: the event is likelier for the first
    likely: int
    unlikely: int
    event: str  # in words
    # hits, false_hits: how often it happened for either input
    hits: int
    false_hits: int
    calls: int  # calls of each input that count
    epsilon: float  # the lower bound, at least 0


@dataclass(slots=True)
class _Calls:
    """What all calls gave: each distinct outcome once, and its number for each call."""

    known: dict[Outcome, int] = field(default_factory=dict)
    outputs: list[object] = field(default_factory=list)

    def number(self, call: Callable[[], object]) -> int:
        outcome, output = observe(call)
        number = self.known.setdefault(outcome, len(self.outputs))
        if number == len(self.outputs):
            self.outputs.append(output)
        return number


class _Score(NamedTuple):
    """A score of each outcome: the higher it is, the likelier the outcome is for the first input."""

    values: Floats  # one for each distinct outcome
    words: Callable[[float], str]  # says of a least score which event it is


def distinguish(
    randomizer: Callable[[Any], object],  # calls are independent: what one gives does not depend on the calls before it
    inputs: Sequence[Any],  # at least 2; all pairs of them are compared
    *,
    calls: int = 100_000,  # of each input, at least `LEAST_CALLS`
    level: float = 0.99,  # confidence that epsilon is not below the bound, over all pairs together
    advance: Callable[[], object] | None = None,  # called after each `CALLS_AT_ONCE` calls
) -> Evidence:
    """Call a randomizer many times, and bound its epsilon from below, by the pair and the event with the greatest bound."""
    checks.count("calls", calls, LEAST_CALLS)
    checks.count("the number of inputs", len(inputs), 2)
    if not 0 < level < 1:
        raise ParameterError("level: write a confidence between 0 and 1", level)
    seen, numbers = _Calls(), np.empty((len(inputs), calls), np.int64)
    done = 0
    for call in range(calls):  # the inputs take turns, so that what changes in time changes for all of them
        for number, value in enumerate(inputs):
            numbers[number, call] = seen.number(lambda argument=value: randomizer(argument))  # type: ignore[misc]
            done += 1
            if advance and done % CALLS_AT_ONCE == 0:
                advance()
    if len(seen.outputs) == 1 and isinstance(seen.outputs[0], Exception):
        wrong = f"the randomizer raised {seen.outputs[0]!r} for every input"
        raise ParameterError(f"{wrong}: write one that takes the inputs and returns something")
    tail = (1 - level) / (_SAME_PAIR * comb(len(inputs), 2))
    evidence = [_bounded(seen, numbers, *pair, tail) for pair in permutations(range(len(inputs)), 2)]
    return max(evidence, key=lambda candidate: candidate.epsilon)


def _bounded(seen: _Calls, numbers: Integers, likely: int, unlikely: int, tail: float) -> Evidence:
    """Bound epsilon by one event that is likelier for the first input."""
    calls = numbers.shape[1]
    first, second = (np.split(numbers[each], [calls // 4, calls // 2]) for each in (likely, unlikely))
    counting, size = len(first[2]), len(seen.outputs)
    taught = np.bincount(first[0], minlength=size), np.bincount(second[0], minlength=size)
    scores = _of_outputs(seen.outputs, *taught), _of_parts(list(seen.known), *taught)
    begins = [_begin(each.values[first[1]], each.values[second[1]], counting, tail) for each in scores]
    (_, least), score = max(zip(begins, scores, strict=True), key=lambda pair: pair[0][0])
    hits, false_hits = (int((score.values[each[2]] >= least).sum()) for each in (first, second))
    epsilon = float(_bound(np.array([hits]), np.array([false_hits]), counting, tail)[0])
    return Evidence(likely, unlikely, score.words(least), hits, false_hits, counting, max(epsilon, 0.0))


def _bound(hits: NDArray[Any], false_hits: NDArray[Any], calls: int, tail: float) -> Floats:
    """Compute ln(P / Q) of the limits of both probabilities."""
    low, high = clopper_pearson(hits, calls, tail)[0], clopper_pearson(false_hits, calls, tail)[1]
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(low) - np.log(high))


def _begin(likely: Floats, unlikely: Floats, counting: int, tail: float) -> tuple[float, float]:
    """Find from which score on the event begins, so that the bound is to be the greatest; return both, the bound first."""
    levels = np.unique(np.concatenate([likely, unlikely]))
    if len(levels) > _THRESHOLDS:
        levels = np.unique(np.quantile(likely, np.linspace(0, 1, _THRESHOLDS), method="lower"))
    hits, false_hits = (len(each) - np.searchsorted(np.sort(each), levels) for each in (likely, unlikely))
    more = counting / len(likely)
    bounds = _bound(hits * more, false_hits * more, counting, tail)
    best = int(bounds.argmax())
    return float(bounds[best]), float(levels[best])


def _of_outputs(outputs: Sequence[object], likely: Integers, unlikely: Integers) -> _Score:
    """Score whole outputs by their likelihood ratio. This is best where there are few of them."""
    values = np.log((likely + _PRIOR) / (unlikely + _PRIOR))

    def words(least: float) -> str:
        if least > 0:  # an output that was never seen scores 0
            return f"the output is {_listed(outputs, np.where(values >= least, likely, 0))}"
        return f"the output is not {_listed(outputs, np.where(values < least, unlikely, 0))}"

    return _Score(values, words)


def _listed(outputs: Sequence[object], weights: Integers) -> str:
    """Name the outputs with the greatest weights, and say how many more have one."""
    most = [shortened(outputs[each]) for each in np.argsort(-weights, kind="stable")[:_NAMED].tolist() if weights[each]]
    more = int((weights > 0).sum()) - len(most)
    return _joined([*most, f"{more:,} more"] if more else most or ["anything else"], "or")


def _joined(names: Sequence[str], last: str) -> str:
    *others, end = names
    return f"{', '.join(others)} {last} {end}" if others else end


def _of_parts(outcomes: Sequence[Outcome], likely: Integers, unlikely: Integers) -> _Score:
    """Score the parts of outputs one by one, as if they were independent: naive Bayes. This is best where outputs are many."""
    kinds: dict[str, list[int]] = defaultdict(list)
    for number, outcome in enumerate(outcomes):
        kinds[outcome.kind].append(number)
    values, spread = np.zeros(len(outcomes)), Counter[str]()
    for members in kinds.values():
        of = likely[members].sum(), unlikely[members].sum()
        if len(kinds) > 1:
            weight = float(np.log((of[0] + _PRIOR) / (of[1] + _PRIOR)))
            values[members] += weight
            spread["its kind and length"] = max(spread["its kind and length"], abs(weight))  # type: ignore[assignment]
        columns = parts([outcomes[number] for number in members])
        for place, column in enumerate(columns.T if min(of) else ()):
            scored = _of_part(column, likely[members], unlikely[members], _FALSE / columns.shape[1])
            if scored is not None:
                values[members] += scored
                name = outcomes[members[0]].name(place)
                spread[name] = max(spread[name], float(np.ptp(scored)))  # type: ignore[assignment]

    def words(least: float) -> str:
        names = [name for name, _ in spread.most_common(_NAMED)]
        names += [f"{len(spread) - _NAMED:,} more"] if len(spread) > _NAMED else []
        return f"the naive Bayes score of {_joined(names, 'and')} is at least {least:.3g}" if names else "the output is anything"

    return _Score(values, words)


def _of_part(column: NDArray[Any], likely: Integers, unlikely: Integers, chance: float) -> Floats | None:
    """Score each outcome by one of its parts; None if it may be independent of the input, with this chance of a mistake."""
    taught = likely + unlikely > 0
    edges = np.unique(column[taught])
    if len(edges) > _BINS:
        edges = np.unique(np.sort(column[taught])[np.linspace(0, taught.sum() - 1, _BINS, dtype=np.int64)])
    bins = np.searchsorted(edges, column, side="right")
    counts = np.array([np.bincount(bins, weights, minlength=len(edges) + 1) for weights in (likely, unlikely)])
    of, both = counts.sum(axis=1, keepdims=True), counts.sum(axis=0)
    expected = of * both / of.sum()
    used = both > 0
    statistic = (np.square(counts - expected)[:, used] / expected[:, used]).sum()
    if used.sum() < 2 or chdtrc(used.sum() - 1, statistic) > chance:  # noqa: PLR2004 - one bin separates nothing
        return None
    ratios = np.log((counts + _PRIOR) / (of + _PRIOR))
    return np.asarray((ratios[0] - ratios[1])[bins])
