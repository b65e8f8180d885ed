"""What was spent on a report: sums over the questions that touch it, by brute force over all leaves."""

from __future__ import annotations

from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st

from deniable_aggregator.breakdown import Breakdown
from deniable_aggregator.spending import Spend, affordable, most

SEGMENTS = {"platform": ("debian", "fedora", "macos"), "version": ("1.0", "1.1", "2", "2.0"), "plan": ("free", "paid")}
BREAKDOWN = Breakdown(
    SEGMENTS,
    {"platform": {"debian": "linux", "fedora": "linux"}, "version": {"1.0": "1", "1.1": "1", "2.0": "2"}},
)
WORDS = [{None, *(word for value in values for word in BREAKDOWN.chain(name, value))} for name, values in SEGMENTS.items()]
cells = st.tuples(*(st.sampled_from(sorted(words, key=str)) for words in WORDS)).map(BREAKDOWN.text)
spendings = st.lists(st.builds(Spend, cells, st.integers(0, 9), st.integers(1, 5)), max_size=12)


def touches(cell, leaf):
    """Tell whether a leaf lies in a cell, word by word."""
    return all(
        word is None or word in BREAKDOWN.chain(name, value)
        for name, word, value in zip(SEGMENTS, BREAKDOWN.words(cell), leaf, strict=True)
    )


def by_brute_force(spends, cell, since):
    leaves = [leaf for leaf in product(*SEGMENTS.values()) if touches(cell, leaf)]
    return max(sum(each.cost for each in spends if each.moment > since and touches(each.cell, leaf)) for leaf in leaves)


@given(spendings, cells, st.integers(-1, 9))
def test_the_most_that_was_spent_on_any_report(spends, cell, since):
    """It is the largest sum over all leaves of the cell, of the questions that touch the leaf."""
    assert most(BREAKDOWN, spends, cell, since) == by_brute_force(spends, cell, since)


@given(spendings, cells, st.integers(-1, 12))
@example([Spend("", 1, 3)], "", -1)
@example([Spend("", 1, 3)], "", 2)
def test_it_is_affordable_from_a_moment_on(spends, cell, limit):
    """From that moment on what was spent in the window before is within the limit, and a second earlier it is not."""
    now, window = 9, 7
    at = affordable(BREAKDOWN, spends, cell, limit, now=now, window=window)
    if limit < 0:
        assert at is None
        return
    assert by_brute_force(spends, cell, at - window) <= limit
    assert at == now or by_brute_force(spends, cell, at - 1 - window) > limit


def test_cells_that_overlap_pairwise_have_a_report_in_common():
    """Three questions of which each two overlap cost one report all three, though no two of them name its cell."""
    spends = [
        Spend("platform=linux,version=1", 1, 1),
        Spend("version=1,plan=free", 1, 2),
        Spend("platform=debian,plan=free", 1, 4),
    ]
    assert most(BREAKDOWN, spends, "", 0) == 7
    assert most(BREAKDOWN, spends, "platform=fedora", 0) == 3
    assert most(BREAKDOWN, spends, "plan=paid", 0) == 1


def test_disjoint_cells_do_not_add_up():
    """Nobody's report is in two values of one segment."""
    spends = [Spend(f"platform={each}", 1, 5) for each in ("debian", "fedora", "macos")]
    assert most(BREAKDOWN, spends, "", 0) == 5
    assert most(BREAKDOWN, [*spends, Spend("platform=linux", 1, 2)], "", 0) == 7


def test_a_metric_without_segments_has_one_cell():
    """There every question touches every report."""
    assert most(Breakdown({}), [Spend("", 1, 2), Spend("", 2, 3)], "", 0) == 5


def test_cells_of_unknown_meaning_add_up():
    """Where cells may have meant something else, each question may have touched any report, whatever its cell is called."""
    spends = [Spend("platform=debian", 1, 2), Spend("platform=gone", 2, 3), Spend("", 3, 4)]
    assert most(None, spends, "platform=macos", 1) == 7


def test_many_questions_about_many_values_are_added_up():
    """Hundreds of questions about the cells of three segments of thirty values are no work."""
    values = {name: tuple(f"{name}{i}" for i in range(30)) for name in "abc"}
    breakdown = Breakdown(values)
    spends = [Spend(f"a=a{i},b=b{j}", 1, 1) for i in range(30) for j in range(30)] + [Spend("c=c7", 1, 3)]
    assert most(breakdown, spends, "", 0) == 4
    assert most(breakdown, spends, "c=c8", 0) == 1
