"""All segments of a metric side by side: one answer or the mean of each, with a test of it against a base."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from deniable.messages.lookalike import did_you_mean
from deniable.messages.plural import plural
from deniable.registry import OTHER
from deniable_aggregator.answer import digits, figures
from deniable_aggregator.answer.figures import Measure
from deniable_aggregator.answer.model.number import QUANTILE_NAMES, quantile_name
from deniable_aggregator.answer.question import date_range
from deniable_aggregator.answer.readings import ShareReading, read
from deniable_aggregator.answer.readings.number import range_of
from deniable_aggregator.answer.refusal import Refusal, UnknownValue
from deniable_aggregator.inference.leaders import Leaders
from deniable_server.pages import metric_page
from deniable_server.pages.parts import chart
from deniable_server.pages.segments.compared import MOST_ANSWERS, check_base, compared, differing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from deniable_aggregator.answer.model.metric import Estimates, Measurement
    from deniable_aggregator.answer.model.rows import Cell
    from deniable_aggregator.answer.select import Published, Selection
    from deniable_server.pages.parts.chart import Scale
    from deniable_server.pages.segments.compared import Difference, Dimension

_WIDEST = 0.5  # of the axis: an estimate with a wider interval is not printed
_MOST_NAMED = 3
MOST_VALUES = 200
"""Values of all dimensions: with more the table is left out."""
_MOST_COLUMNS = 8  # segments in a table of all answers
_MOST_SHOWN = 20  # values of a dimension, unless all are asked for
_HALF = 0.5
_SHOWN = 40  # characters of what was asked for


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """One segment."""

    name: str  # its value
    cell: str  # as `segment` names it
    state: str  # "base", "more", "less", "alike", "few" or "withheld"
    words: str  # the same in words
    estimate: str
    between: str
    reports: str
    at: float  # places in percent of the axis, as those of `chart.ValueBar`
    interval: tuple[float, float]
    beyond: tuple[bool, bool]  # whether the interval goes on below and above the axis
    instead: str = ""  # of a withheld one the nearest cell that is published; empty if that is all reports
    by: str = ""  # by how much it differs from the base, if it does
    numbers: tuple[Cell, ...] = ()  # the state and all numbers, for a file

    @property
    def n(self) -> int:
        """The number of its reports, 0 if nothing is published of it."""
        return int(self.numbers[1] or 0) if len(self.numbers) > 1 else 0

    @property
    def differs(self) -> bool:
        """Whether it was found to differ from its base."""
        return self.state in ("more", "less")


Groups = tuple[tuple[str, tuple[SegmentRow, ...]], ...]
"""Of each dimension its rows, those with the most reports first."""


class SegmentGroup(NamedTuple):
    """The values of a dimension."""

    name: str
    rows: tuple[SegmentRow, ...]
    folded: str  # which others there are, in words; empty if there are none

    @property
    def bases(self) -> list[SegmentRow]:
        """The rows that may be the base."""
        return [row for row in self.rows if row.name != OTHER]


@dataclass(frozen=True, slots=True)
class SegmentTable:
    """The segments of a metric."""

    label: str  # what is estimated of each
    value: str  # the same as the address has it
    choices: tuple[tuple[str, str], ...]  # what else can be: as the address has it, and as text
    scale: Scale
    says: tuple[str, ...]  # of each dimension what differs, in words
    overall: SegmentRow  # all reports
    groups: Groups  # of each dimension its rows
    unit: str  # of differences
    together: int = 1  # answers that are tested together
    columns: tuple[str, ...] = ()  # the segments that are published, if all of their answers have room in one table
    answers: tuple[tuple[str, tuple[SegmentRow, ...]], ...] = ()  # each answer, with its row of each of these segments
    tested: tuple[tuple[str, Groups], ...] = ()  # each answer that is tested, as `value` has it, with its rows

    def listed(self, *, everything: bool) -> list[SegmentGroup]:
        """Return the values of each dimension with the most reports, or all of them. The base is always among them."""
        groups = []
        for name, listed in self.groups:
            number = len(listed) if everything or len(listed) <= _MOST_SHOWN else _MOST_SHOWN
            base = [row for row in listed[number:] if row.state == "base"]
            others = [row for row in listed[number:] if row.state != "base"]
            groups.append(SegmentGroup(name, (*listed[:number], *base), _folded(others)))
        return groups


def _folded(rows: Sequence[SegmentRow]) -> str:
    """Say how many rows are not shown, and how many of them differ from the base."""
    if not rows:
        return ""
    differing = sum(row.differs for row in rows)
    how = f"{differing} of them {'differs' if differing == 1 else 'differ'}" if differing else "none of them found to differ"
    return f"{plural(len(rows), 'more segment')} with fewer reports, {how}"


def table(
    published: Sequence[Published],
    measured: Measurement,  # all reports, in the same periods
    days: tuple[str, str] | None,  # the first and the last day; None: all
    base: str,  # as of `compared`
    value: str = "",  # the answer or figure of a number; empty: yes, the mean, or the answer that differs most clearly
) -> SegmentTable | None:
    """Describe all segments; None if there are none, or nothing that can be compared. Raise `UnknownValue` if there is none."""
    version = next(each for each in published if each.declared.metric.version == measured.version)
    metric, names = version.declared.metric, version.breakdown.names
    answers = {} if metric.discover or not names else answers_of(measured)
    check_base(version, base)
    if value and answers and value not in answers:
        raise UnknownValue(f"{metric.id} has no answer {value[:_SHOWN]!r} here{did_you_mean(value, answers)}")
    if not answers or sum(len(version.breakdown.values[name]) for name in names) > MOST_VALUES:
        return None
    tested = tested_of(measured, answers, value)
    try:
        dimensions = compared(version, days, tested, base, measured.level)
    except Refusal:  # it asks for too much, so that the page does without it
        return None
    differences = differing(dimensions, metric.scale)
    name_of = value or (differences[0].row["value"] if differences else tested[0])
    answer = answers[name_of]
    first, last = date_range.read(days, datetime.now(UTC)).names(version.length)
    scale = _scale(measured, answer.interval, [row for each in dimensions for row in each.of(name_of)])
    measure = Measure(measured.number is None, metric.unit, metric.scale, range_of(metric), name_of in QUANTILE_NAMES)
    writer = _Writer(version, measure, scale, 1 - measured.level)
    overall = {
        "": "All reports",
        "estimate": answer.estimate,
        "low": answer.interval[0],
        "high": answer.interval[1],
        "n": measured.n,
        "state": "published",
    }
    by_answer = {each: writer.groups(dimensions, each) for each in dict.fromkeys([name_of, *tested])}
    groups = by_answer[name_of]
    cells = [row.cell for _, own in groups for row in own if row.reports]
    others_lead = _others_lead(measured, [version.between(cell, first, last) for cell in cells], cells)
    noun = "option" if metric.kind.options else "answer"
    alone = [each.name for each in dimensions if any(row.get("difference") is not None for row in each.rows)]
    chosen = _chosen(differences, tested, noun, alone, is_all=len(tested) == len(answers))
    return SegmentTable(
        label=answer.label,
        value=name_of,
        choices=tuple((name, answers[name].label) for name in dict.fromkeys([name_of, *list(answers)[:MOST_ANSWERS]])),
        scale=scale,
        says=tuple(
            filter(None, (chosen, *([] if chosen and not differences else writer.says(answer.label, groups)), others_lead))
        ),
        overall=writer.row(overall, "", is_base=False),
        groups=groups,
        unit=", in points" if measure.is_share else "",
        together=len(tested),
        columns=tuple(map(figures.group, cells)) if len(tested) > 1 and len(cells) <= _MOST_COLUMNS else (),
        answers=tuple((answers[each].label, _of_cells(by_answer[each], cells)) for each in tested),
        tested=tuple(by_answer.items()),
    )


def _of_cells(groups: Groups, cells: Sequence[str]) -> tuple[SegmentRow, ...]:
    """Return the rows of these cells."""
    rows = {row.cell: row for _, own in groups for row in own}
    return tuple(rows[cell] for cell in cells)


def tested_of(measured: Estimates, answers: Mapping[str, Answer], value: str) -> list[str]:
    """Return what is tested together: the most frequent answers, and the one asked for. Of a number it is one figure."""
    first = next(iter(answers))
    if measured.number is not None or any(row.value is True for row in measured.estimates):  # the share of no mirrors yes
        return [value or first]
    return list(dict.fromkeys([*list(answers)[:MOST_ANSWERS], value or first]))


def _chosen(
    differences: Sequence[Difference],
    tested: Sequence[str],  # answers
    noun: str,
    alone: Sequence[str],  # the dimensions with segments that are compared, each by itself
    *,
    is_all: bool,  # whether these are all answers
) -> str:
    """Say which answers differ between segments, the clearest first; empty if only one is tested, or nothing is compared."""
    if len(tested) == 1 or not alone:
        return ""
    many = f"all {len(tested)} {noun}s" if is_all else f"the {len(tested)} most frequent {noun}s"
    within = ", in each dimension by itself" if alone[1:] else ""
    together = f"Tests and intervals of differences hold for {many} together{within}."
    names = list(dict.fromkeys(one.row["value"] for one in differences))
    if not names:
        return f"No {noun} differs between segments by more than chance. {together}"
    others = f"; {figures.listed([figures.quoted(each) for each in names[1:_MOST_NAMED]])}" if names[1:] else ""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    also = f"{others}{more} also {'differs' if len(names) == 2 else 'differ'}" if others else ""  # noqa: PLR2004
    return f"{figures.quoted(names[0])} differs most clearly between segments{also}. {together}"


def _others_lead(measured: Measurement, selections: Sequence[Selection], cells: Sequence[str]) -> str:
    """Say in which segments another answer is the most frequent one than in all reports; empty if none is found."""
    if measured.leading is None or measured.leading.count != 1 or not measured.leading.leaders:
        return ""
    level = 1 - (1 - measured.level) / max(len(cells), 1)  # all segments are tested, so that at most 5% of pages name a wrong one
    winners = []
    for cell, reading in zip(cells, read(selections), strict=True):
        if isinstance(reading, ShareReading) and (first := Leaders(reading.shares, level)).is_found:
            position, metric = reading.values[first.order[0]], reading.declared.metric
            if metric.value(position) not in measured.leading.leaders:
                winners.append((cell, metric.label(position), "option" if metric.kind.options else "answer"))
    if not winners:
        return ""
    named = [f"with {figures.group(cell)} ({figures.quoted(label)})" for cell, label, _ in winners[:_MOST_NAMED]]
    more = [f"with {len(winners) - _MOST_NAMED} more"] if len(winners) > _MOST_NAMED else []
    return f"Another {winners[0][2]} is the most frequent one {figures.listed([*named, *more])}."


class Answer(NamedTuple):
    """What segments are compared by."""

    label: str  # as text
    # estimate, interval: of all reports
    estimate: float
    interval: tuple[float, float]


def answers_of(measured: Estimates) -> dict[str, Answer]:
    """Return what the segments can be compared by, as rows name it, the usual one first: yes, the largest answer, or the mean."""
    if (number := measured.number) is None:
        listed = sorted(metric_page.estimated(measured), key=lambda row: (row.value is not True, -row.frequency))
        return {each.label: Answer(each.label, each.frequency, each.interval) for each in listed}
    mean = number.geometric_mean
    name, label = ("geometric_mean", "Geometric mean") if mean else ("mean", "Mean")
    first = Answer(label, mean.value, mean.interval) if mean else Answer(label, number.mean, number.interval)
    resolved = sorted((row for row in number.quantiles if row.resolved), key=lambda row: row.share != _HALF)
    labels = ["Median" if row.share == _HALF else f"{100 * row.share:g}% quantile" for row in resolved]
    named = zip(labels, resolved, strict=True)
    return {name: first, **{quantile_name(row.share): Answer(label, row.value, row.interval) for label, row in named}}


def _scale(measured: Measurement, interval: tuple[float, float], listed: Sequence[Mapping[str, Any]]) -> Scale:
    ends = [(each["low"], each["high"]) for each in listed if each["low"] is not None and each["high"] is not None]
    if measured.number is None:
        narrow = [high for low, high in ends if high - low <= _WIDEST]
        return chart.share_scale(max([interval[1], *narrow]))
    low, high = min([interval[0], *(end[0] for end in ends)]), max([interval[1], *(end[1] for end in ends)])
    most = measured.number.range
    low, high = max(low, most[0]), min(high, most[1])
    return (
        chart.number_scale(low, high, is_log=measured.number.scale == "log")
        if low < high
        else chart.number_scale(*most, is_log=False)
    )


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes rows of one table."""

    version: Published
    measure: Measure
    scale: Scale
    alpha: float

    def instead(self, cell: str) -> str:
        """Return the nearest cell around a withheld one that is published; empty if that is all reports."""
        return next((each for each in self.version.breakdown.coarser(cell) if each in self.version.cells), "")

    def groups(self, dimensions: Sequence[Dimension], answer: str) -> Groups:
        """Describe one answer of all segments."""
        rows = {
            each.name: [self.row(row, f"{each.name}={row['']}", is_base=row[""] == each.base) for row in each.of(answer)]
            for each in dimensions
        }
        return tuple((name, tuple(sorted(own, key=lambda row: -row.n))) for name, own in rows.items())

    def row(self, answered: Mapping[str, Any], cell: str, *, is_base: bool) -> SegmentRow:
        """Describe one segment."""
        name = answered[""]
        value, low, high = (answered.get(column) for column in ("estimate", "low", "high"))
        if answered["state"] != "published" or value is None or low is None or high is None:
            state = "withheld" if answered["state"] == "withheld" else "few"
            words = "withheld" if state == "withheld" else "nothing published" if answered["state"] != "published" else _FEW
            instead = self.instead(cell) if state == "withheld" else ""
            return SegmentRow(
                name, cell, state, words, _NONE, "", "", 0, (0, 0), (False, False), instead, numbers=(answered["state"],)
            )
        interval = (low, high)
        reach = (high - low) / (1.0 if self.measure.is_share else max(self.scale.high - self.scale.low, 1e-9))
        is_wide = self.measure.is_share and reach > _WIDEST
        state, words, by = ("base", "the base", "") if is_base else self._against(answered)
        if not cell:
            state, words, by = "all", "", ""
        elif is_wide and state == "alike":
            state, words, by = "few", _FEW, ""
        error = digits.stderr(interval)
        between = figures.possible_share_range(interval, error) if self.measure.is_share else self.measure.ends(interval)
        return SegmentRow(
            name,
            cell,
            state,
            words,
            _NONE if is_wide else self.measure.estimate(value, interval),
            between,
            figures.count(answered["n"]),
            round(self.scale.across(value), 1),
            (round(self.scale.across(low), 1), round(self.scale.across(high), 1)),
            (self.measure.is_share and low < self.scale.low, high > self.scale.high * (1 + 1e-9)),
            by=by,
            numbers=(answered["state"], *(answered.get(column) for column in _NUMBERS)),
        )

    def _against(self, answered: Mapping[str, Any]) -> tuple[str, str, str]:
        """Say whether a segment differs from its base, and by how much."""
        difference, p_value = answered.get("difference"), answered.get("p_holm")
        if difference is None or p_value is None or not isfinite(difference):
            return "few", str(answered.get("reason") or "not compared"), ""
        ends = (answered["diff_low_all"], answered["diff_high_all"])
        if p_value > self.alpha:
            return "alike", f"cannot be told apart ({self._signed(ends)})", ""
        is_more = figures.distance(difference, self.measure.scale) > 0
        state, word = ("more", "higher") if is_more else ("less", "lower")
        by = f"by {self.measure.size(ends, is_rise=is_more)}"
        # Holm's test finds a little more than the intervals exclude. What it finds then is by up to so much.
        return state, f"{word} ({by if self.measure.holds_none(ends) else self._signed(ends)})", by

    def _signed(self, ends: tuple[float, float]) -> str:
        return self.measure.signed(ends).removesuffix(" points")  # the head of the column has the unit

    def says(self, label: str, groups: Groups) -> Iterator[str]:
        """Say of each dimension which segments differ from the base; of those in which none does, in one sentence."""
        subject = figures.quoted(label) if self.measure.is_share else f"The {label.lower()}"
        alike = []
        for name, listed in groups:
            base = next((row for row in listed if row.state == "base"), None)
            if base is None or not any(row.state in ("more", "less", "alike") for row in listed):
                continue  # none is compared with it
            if differing := self._differing(listed):
                yield f"{subject} is {differing} than with {figures.group(base.cell)}."
            else:
                alike.append(f"between values of {name}")
        if alike:
            yield f"{subject} does not differ beyond chance {', nor '.join(alike)}."

    def _differing(self, rows: Sequence[SegmentRow]) -> str:
        """Name the segments that differ from the base; empty if none does."""
        more, less = ("more frequent", "less frequent") if self.measure.is_share else ("higher", "lower")
        parts = [
            f"{how} {_listed([row for row in rows if row.state == state])}"
            for state, how in (("more", more), ("less", less))
            if any(row.state == state for row in rows)
        ]
        return f"{', and '.join(parts)}{',' if len(parts) > 1 else ''}"


def _listed(rows: Sequence[SegmentRow]) -> str:
    """Name segments that differ, each with its size; of many some."""
    named = [f"with {figures.group(row.cell)} ({row.by})" for row in rows[:_MOST_NAMED]]
    more = [f"with {len(rows) - _MOST_NAMED} more"] if len(rows) > _MOST_NAMED else []
    return figures.listed([*named, *more])


_NUMBERS = ("n", "estimate", "unit", "low", "high", "difference", "diff_low_all", "diff_high_all", "p_holm")
_NONE = "\N{EN DASH}"
_FEW = "too few reports to say"
