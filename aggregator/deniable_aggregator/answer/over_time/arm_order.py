"""Which of several arms has the most and the least of an answer, or the highest and the lowest mean."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from deniable_aggregator.answer import figures
from deniable_aggregator.answer.difference import compare
from deniable_aggregator.answer.difference.sentence import name_of
from deniable_aggregator.answer.model.experiment import ArmOrder
from deniable_aggregator.answer.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.answer.model.comparison import Comparison, ValueDiffering
    from deniable_aggregator.answer.select import Published

_FEWEST = 3  # arms: of two the comparison with the base says it


def arm_order(
    published: Sequence[Published],
    segment: str,  # whose values are the arms
    comparisons: Sequence[Comparison],  # of arms with the base
    label: str,  # the answer, or the mean
    level: float,
) -> ArmOrder | None:
    """Say which arm has the most, and which the least; None if fewer than three arms are published."""
    known = {_names(comparison)[1]: (comparison, row) for comparison in comparisons if (row := _row(comparison, label))}
    if len(known) < _FEWEST - 1:
        return None
    base = _names(comparisons[0])[0]
    _, row = next(iter(known.values()))
    estimates = {base: row.first} | {arm: row.second for arm, (_, row) in known.items()}
    ordered = sorted(estimates, key=lambda arm: estimates[arm])

    @cache
    def is_above(higher: str, lower: str) -> bool:
        if estimates[higher] <= estimates[lower]:
            return False
        comparison = known[lower if higher == base else higher][0] if base in (higher, lower) else _pair(higher, lower)
        return comparison is not None and _is_above(comparison, label, f"{segment}={higher}", len(arms), level)

    def _pair(one: str, other: str) -> Comparison | None:
        try:
            return compare(published, f"{segment}={one}", f"{segment}={other}", level=level)
        except Refusal:  # as of two arms that are published in no period together
            return None

    arms = published[0].app.registry.segments[segment]
    last, *_, first = ordered
    most = first if all(is_above(first, other) for other in ordered[:-1]) else None
    least = last if all(is_above(other, last) for other in ordered[1:]) else None
    highest = [arm for arm in ordered[::-1] if not any(is_above(other, arm) for other in ordered)]
    return ArmOrder(label, highest, most, least, _says(row, len(ordered), highest, most, least))


def _is_above(comparison: Comparison, label: str, cell: str, arms: int, level: float) -> bool:
    """Tell whether an arm is found to be above the other one, among all pairs of arms."""
    row = _row(comparison, label)
    if row is None or comparison.experiment is None:
        return False
    # Which arms are the first and the last is seen by looking, so all pairs count (Bonferroni), and all values (Holm). The
    # p-value holds for the comparisons of its kind: of a pair with the base these are fewer than all pairs.
    p_value = row.p_holm * (arms * (arms - 1) // 2) / comparison.experiment.comparisons
    higher = comparison.b.name if row.second > row.first else comparison.a.name
    return p_value <= 1 - level and higher == cell


def _row(comparison: Comparison, label: str) -> ValueDiffering | None:
    return next((row for row in comparison.differences if row.label == label), None)


def _names(comparison: Comparison) -> tuple[str, str]:
    """Return the arms of a comparison: the base, and the other one."""
    base, arm = (side.name.partition("=")[2] for side in (comparison.a, comparison.b))
    return base, arm


def _says(row: ValueDiffering, arms: int, highest: Sequence[str], most: str | None, least: str | None) -> str:
    is_share = row.value is not None
    subject = figures.quoted(row.label) if is_share else f"the {name_of(row)}"
    high, low = ("most frequent", "least frequent") if is_share else ("highest", "lowest")
    words = [f"{word} with {figures.quoted(arm)}" for word, arm in ((high, most), (low, least)) if arm]
    if most is None and len(highest) < arms:
        among = figures.listed([figures.quoted(arm) for arm in highest], "or")
        words.insert(0, f"{high} with {among}")
    if not words:
        most = f"{subject} most often" if is_share else f"the highest {name_of(row)}"
        return f"None of the {arms} arms is found so far to have {most}."
    return figures.beginning(f"{subject} is {' and '.join(words)}, of {arms} arms.")
