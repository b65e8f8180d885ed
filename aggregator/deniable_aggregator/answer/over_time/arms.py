"""What pages say of the arms of an experiment beside the estimates of a metric."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from deniable_aggregator.answer.difference.sentence import clearness, of_arm
from deniable_aggregator.answer.model.experiment import Arm
from deniable_aggregator.answer.over_time.looks import arm_comparisons, arm_pairs, scope_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deniable_aggregator.answer.model.comparison import Comparison
    from deniable_aggregator.answer.select import Published


def arms_of(
    published: Sequence[Published],
    period: str | None,  # that is estimated; None: all
    segment: str | None,  # that is estimated; of one nothing is said
    level: float,
    *,
    ranged: bool,  # whether a range of time is estimated, which arms are not: their sentences then say it
) -> list[Arm]:
    """Compare the arms of each experiment of a metric with their base, as far as they are published, in words."""
    listed: list[Arm] = []
    if segment:
        return listed
    for comparison in arm_comparisons(published, arm_pairs(published[0]), level, period):
        sizes = comparison.experiment.sizes if comparison.experiment else None
        begin = f"{scope_of([comparison])}: " if ranged else ""
        of_sizes = f"{begin}{sizes.says}" if sizes and sizes.says else ""
        listed.append(Arm(comparison.a.name, comparison.b.name, f"{begin}{_sentence(comparison)}", of_sizes))
    return listed


def _sentence(comparison: Comparison) -> str:
    """Say of the value whose difference is clearest whether the arm has an effect, and how many more differ."""
    rows = [row for row in comparison.differences if row.value is not False]
    differing = [row for row in rows if row.differs]
    most = min(differing or rows, key=partial(clearness, scale=comparison.scale))
    more = len(differing) - 1
    others = f" {more} more {'value differs' if more == 1 else 'values differ'}." if more > 0 else ""
    return f"{of_arm(most, comparison)}{others}"
