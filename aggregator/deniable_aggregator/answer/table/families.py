"""Families of differences: which ones of an answer are tested together, and have intervals that hold together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable.messages.plural import plural
from deniable_aggregator.answer.question.cells import segments_of
from deniable_aggregator.decode.multiple_testing import holm_adjusted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from deniable_aggregator.answer.model.query import Query
    from deniable_aggregator.answer.table.written import Group


class Families(NamedTuple):
    """The differences of an answer. The arms of an experiment are a family, as on its page; all other differences are one."""

    # adjusted, tests: of each group. The p-values of its hypotheses for all differences together; and by how much the error of
    # each interval is divided, so that all hold together.
    adjusted: Sequence[NDArray[np.float64]]
    tests: Sequence[int]
    says: str  # what is tested together, in words; empty if nothing is

    @classmethod
    def of(cls, query: Query, groups: Sequence[Group]) -> Families:
        """Put each difference into its family. Of several families each has the same part of the error (Bonferroni)."""
        tested = [group for group in groups if group.hypotheses]
        others = [group for group in tested if not group.of_arms]
        arms = [group for group in tested if group.of_arms]
        experiments = {_experiment(query, group) for group in arms}
        number, size = len(experiments) + bool(others), sum(group.hypotheses for group in others)
        joint = holm_adjusted(np.concatenate([np.zeros(0), *(group.tests for group in others)]))
        parts = iter(np.split(joint, np.cumsum([len(group.tests) for group in others])))
        adjusted, tests = [], []
        for group in groups:
            if group.of_arms:
                own, count = group.planned.adjusted(group.tests), group.planned.comparisons * group.hypotheses
            else:
                own, count = (next(parts) if group.hypotheses else group.tests), size
            adjusted.append(np.minimum(own * number, 1.0))
            tests.append(max(count * number, 1))
        return cls(adjusted, tests, _in_words(number, size, max((group.planned.comparisons for group in arms), default=0)))


def _experiment(query: Query, group: Group) -> tuple[object, ...]:
    """Return what the arms of one experiment have in common: the metric, the time and other segments."""
    # All are compared with one of them. If that is not the declared base, the pair with the declared one has a part 1 / k of the
    # error, and each of k - 1 others 2 / (k (k + 1)), with k + 1 arms: together less than all of it.
    at = segments_of(query).index(str(query.compare and query.compare.dimension))
    return id(group.of), group.name, *group.words[:at], *group.words[at + 1 :]


def _in_words(
    number: int,  # of families
    size: int,  # of the family of all differences that are not of arms
    comparisons: int,  # of arms of an experiment; 0 without any
) -> str:
    if not number:
        return ""
    parts = []
    if size:
        parts.append(f"{plural(size, 'difference')} (Holm)" if size > 1 else "one difference")
    if comparisons:
        arms = f", all {comparisons} comparisons of arms (Bonferroni)" if comparisons > 1 else ""
        parts.append(f"all values of the arms (Holm){arms}, and all looks")
    more = f". There are {number} such families, and all count (Bonferroni)" if number > 1 else ""
    return f"Tested together: {'; '.join(parts)}{more}."
